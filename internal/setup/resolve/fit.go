package resolve

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// AddChunkColumns returns the statements that add the columns of chunks to an embedding table.
func (f *Findings) AddChunkColumns() []string {
	var sql []string
	if !f.Destination.Chunked {
		columns := make([]string, len(catalog.ChunkColumns))
		for i, c := range catalog.ChunkColumns {
			columns[i] = "ADD COLUMN IF NOT EXISTS " + database.Quote(c.Name) + " " + c.Definition
		}
		sql = append(sql, "ALTER TABLE "+f.Pipeline.Into()+" "+strings.Join(columns, ", "))
	}
	if !f.Destination.HashIndexed {
		sql = append(sql, catalog.HashIndex(f.Pipeline.Spec))
	}
	return sql
}

// Foreign returns *ConfigError when an embedding table that init did not make would have to be altered.
func (f *Findings) Foreign() error {
	if !f.Pipeline.Chunking.On() || !f.Destination.Exists || f.Destination.Mark != "" || f.Destination.Chunked {
		return nil
	}
	hint := []string{"name another table: a missing one is created", "or make it one yourself:"}
	for _, sql := range f.AddChunkColumns() {
		hint = append(hint, sql+";")
	}
	return refusal.For(f.Pipeline.Name, code.Destination, fmt.Sprintf(
		"the embedding table %s has no columns for chunks, and init did not make it", f.Pipeline.Into()), hint...)
}

// behind returns *ConfigError when the embedding table lacks what init adds: the columns of chunks if texts are
// chunked, or the widened types of the source's key.
func (f *Findings) behind() error {
	switch {
	case f.Pipeline.Chunking.On() && !f.Pipeline.Chunked:
		return refusal.For(f.Pipeline.Name, code.Destination,
			"the embedding table "+f.Pipeline.Into()+" has no columns for chunks", "run embedsidecar init: it adds them")
	case f.Destination.Retype != nil:
		return refusal.For(f.Pipeline.Name, "", fmt.Sprintf("the key of %s has a new type, which its embedding table %s lacks",
			f.Table.Quoted(), f.Pipeline.Into()),
			"run embedsidecar init as the owner of the embedding table: it alters the key there, and embeds nothing again",
			"or alter it yourself: "+f.Destination.Retype[0]+";")
	}
	return nil
}

// unindexable returns *ConfigError when no index can be built for vectors of this width.
func unindexable(spec pipeline.Spec, stored pipeline.Stored, dims int) error {
	if spec.Index == "" || pipeline.OtherIndexOf(spec.Index) != nil || dims <= stored.Indexable() {
		return nil
	}
	hint := []string{"leave index out: searches then read every vector"}
	for _, name := range pipeline.StoredTypes() {
		if other := pipeline.Stored(name); other.Takes(false) && dims <= other.Indexable() {
			hint = append([]string{fmt.Sprintf("store them as %s, which is indexed up to %d dimensions: into: {..., type: %s}",
				other, other.Indexable(), other)}, hint...)
			break
		}
	}
	return refusal.Coded(code.Width, fmt.Sprintf("vectors of type %s are indexed up to %d dimensions; the model's have %d",
		stored.Name(), stored.Indexable(), dims), hint...)
}

// toMake is the hint about a missing destination.
func (f *Findings) toMake() []string {
	hint := []string{"run embedsidecar init: it creates it"}
	if !f.Pipeline.InSource() && !f.Destination.MayMake {
		hint = append(hint, "the role may not create in the schema: GRANT CREATE ON SCHEMA "+
			database.Quote(f.Destination.Schema)+" TO "+database.Quote(f.Table.Reader)+";")
	}
	return hint
}

// otherIndex returns *ConfigError when the extension of the requested kind of index is missing, or the index does not
// support the vectors' type. The type of a destination that does not exist yet is known only after pgvector is
// installed.
func otherIndex(ctx context.Context, q database.Querier, spec pipeline.Spec, stored pipeline.Stored,
	v catalog.VectorType,
) error {
	other := pipeline.OtherIndexOf(spec.Index)
	if other == nil {
		return nil
	}
	var installed, available, takes bool
	err := q.QueryRow(ctx, sqlfiles.Query("index_extension"), pgx.StrictNamedArgs{
		"extension": other.Extension, "kind": spec.Index, "operators": stored.OperatorClass(), "type": v.OIDs[stored],
	}).Scan(&installed, &available, &takes)
	if err != nil {
		return fmt.Errorf("look for the extension %s: %w", other.Extension, err)
	}
	const hnsw = "or use an index of pgvector: index: hnsw"
	switch {
	case !installed && !available:
		return refusal.Coded(code.Destination, fmt.Sprintf("index: %s needs the extension %s (%s), which this server does "+
			"not have", spec.Index, other.Extension, other.Project),
			"install "+other.Project+" on the server, then: CREATE EXTENSION "+other.Extension+" CASCADE;", hnsw)
	case !installed:
		return refusal.Coded(code.Destination, fmt.Sprintf("index: %s needs the extension %s, which is not installed in "+
			"this database", spec.Index, other.Extension), "CREATE EXTENSION "+other.Extension+" CASCADE;", hnsw)
	case !takes:
		return refusal.Coded(code.Destination, fmt.Sprintf("index: the installed %s takes no vectors of type %s by %s "+
			"distance (operator class %s)", other.Extension, stored.Name(), stored.Metric(), stored.OperatorClass()), hnsw)
	}
	return nil
}
