package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Vectors describes a model's vectors, as far as a destination must fit them.
type Vectors struct {
	Dims   int // 0: unknown
	Sparse bool

	Either  bool // whether they are sparse is unknown: an existing destination fits them
	Unasked bool // the model was not queried yet: nothing is made, and the width may be unknown

	// Promised is the schema in which pgvector is about to be installed, for a plan that begins with that; "": pgvector
	// must exist
	Promised string

	Known *Known // tables that were already read

	// Stored says that the pipeline is set up: a text of plain columns needs no query, and no lock
	Stored bool
}

// VectorType describes how this database can store vectors: the available types, and the schema of pgvector if it is
// installed.
type VectorType struct {
	Schema  string
	Usable  bool // the current role may use its types
	Version string
	OIDs    map[pipeline.Stored]uint32 // of the available types
}

// Extension returns the quoted schema.
func (v VectorType) Extension() string { return database.Quote(v.Schema) }

// stored returns the type with an OID, or "".
func (v VectorType) stored(oid uint32) pipeline.Stored {
	for stored, known := range v.OIDs {
		if known == oid {
			return stored
		}
	}
	return ""
}

// Vector is FindVector with a cache.
func (k *Known) Vector(ctx context.Context, q database.Querier, promised string) (VectorType, error) {
	if k == nil || k.vector == nil {
		return FindVector(ctx, q, promised)
	}
	return *k.vector, nil
}

// FindVector looks up the types. It returns *ConfigError when the extension is neither installed nor promised.
func FindVector(ctx context.Context, q database.Querier, promised string) (v VectorType, err error) {
	var ofPgvector map[string]uint32
	err = q.QueryRow(ctx, sqlfiles.Query("vector_types"), pgx.StrictNamedArgs{"types": pipeline.StoredTypes()}).
		Scan(&v.Schema, &v.Usable, &v.Version, &ofPgvector)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return v, fmt.Errorf("look up types of vectors: %w", err)
	}
	v.OIDs = map[pipeline.Stored]uint32{}
	if v.Version == "" && promised != "" { // no column has type 0
		v.Schema = promised
		for _, name := range pipeline.StoredTypes() {
			v.OIDs[pipeline.Stored(name)] = 0
		}
		return v, nil
	}
	for _, name := range pipeline.StoredTypes() {
		stored := pipeline.Stored(name)
		oid := cmp.Or(stored.OID(), ofPgvector[name])
		if oid != 0 && slices.Compare(numbers(v.Version), numbers(stored.Pgvector())) >= 0 {
			v.OIDs[stored] = oid
		}
	}
	if len(v.OIDs) == 0 {
		return v, notInstalled()
	}
	return v, nil
}

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		list = append(list, n)
	}
	return list
}

// unknown returns *ConfigError when a destination type is not available here.
func (v VectorType) unknown(stored pipeline.Stored) error {
	names := pipeline.StoredTypes()
	last := len(names) - 1
	switch _, known := v.OIDs[stored]; {
	case known:
		return nil
	case !slices.Contains(names, string(stored)):
		return refusal.Coded(code.Pgvector, fmt.Sprintf("a destination cannot be of type %s", stored),
			strings.Join(names[:last], ", ")+" and "+names[last]+" are possible")
	case v.Version == "":
		return notInstalled()
	}
	return refusal.Coded(code.Pgvector, fmt.Sprintf("a destination of type %s needs pgvector %s or newer; this database has %s",
		stored, stored.Pgvector(), v.Version),
		"ALTER EXTENSION vector UPDATE; (after installing a newer one on the server)")
}

func notInstalled() error {
	return refusal.Coded(code.Pgvector, "the extension vector is not installed in this database",
		"CREATE EXTENSION vector; (superuser, or the owner of the database where the server trusts the extension)")
}

// notVector describes a column that is not of one of our types.
func (v VectorType) notVector(what string, c Column) string {
	return fmt.Sprintf("%s is of type %s, not %s", what, c.TypeName, database.Quote(v.Schema, "vector"))
}

// Destination is where a pipeline's vectors go, and whether it exists.
type Destination struct {
	pipeline.Form
	Exists  bool
	Dims    int    // 0: any width
	Schema  string // where an embedding table will be made
	MayMake bool

	Table *Table // the embedding table; nil: there is none
	Mark  string // its comment, if init made it
	Owned bool   // the current role may comment on it

	Retype []string // changes its key types to the source's, which were widened; nil: they are equal
}

// FindDestination inspects the destination of a pipeline whose table and key are known, for a model's vectors. An
// unknown width is taken from the destination. It returns *ConfigError when the vectors cannot go there.
func FindDestination(ctx context.Context, q pgx.Tx, spec pipeline.Spec, t *Table, v VectorType,
	model Vectors,
) (d Destination, err error) {
	if spec.IntoType != "" {
		if err := v.unknown(spec.IntoType); err != nil {
			return d, err
		}
	}
	if spec.InSource() {
		d, err = findColumn(ctx, q, spec, t, v)
	} else {
		d, err = findEmbeddingTable(ctx, q, spec, t, v, model.Known)
	}
	if err != nil {
		return d, err
	}
	if !d.Exists {
		d.Chunked = spec.Chunking.On()
		if d.Stored = spec.IntoType; d.Stored == "" {
			d.Stored = pipeline.StoredFor(model.Sparse)
		}
		if err := v.unknown(d.Stored); err != nil {
			return d, err
		}
		return d, d.unfit(spec, model)
	}
	if spec.IntoType != "" && spec.IntoType != d.Stored {
		return d, refusal.Coded(code.Width, fmt.Sprintf("the destination %s is of type %s, not %s as configured",
			spec.DestinationName(), d.Stored, spec.IntoType),
			"leave the type out to take the destination as it is, or name another destination: a missing one is created")
	}
	return d, d.unfit(spec, model)
}

func (d Destination) unfit(spec pipeline.Spec, model Vectors) error {
	// Dense vectors cannot be as wide as sparse ones.
	sparse := model.Sparse || model.Either && model.Dims > pipeline.StoredVector.Widest()
	switch widest := d.Stored.Widest(); {
	case model.Dims == 0:
	case sparse && !d.Stored.Takes(true):
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are sparse, and the destination %s is of type %s",
			spec.DestinationName(), d.Stored),
			"sparse vectors are stored as sparsevec: leave the type out, and name a destination that does not exist yet",
			"or choose a model of dense vectors")
	case !model.Either && !d.Stored.Takes(model.Sparse):
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are dense, and the destination %s is of type sparsevec, which would only make them larger",
			spec.DestinationName()),
			"use vector, halfvec or bit", "or choose a sparse model")
	case model.Dims > widest:
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are %d wide; pgvector stores up to %d", model.Dims, widest))
	case d.Dims != 0 && d.Dims != model.Dims:
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are %d wide, those of the destination %s %d", model.Dims,
			spec.DestinationName(), d.Dims),
			"choose a model of that width, or another destination")
	}
	return nil
}

func findColumn(ctx context.Context, q database.Querier, spec pipeline.Spec, t *Table, v VectorType) (d Destination,
	err error,
) {
	c, ok := t.Column(spec.IntoColumn)
	if !ok {
		return d, nil
	}
	name := spec.DestinationName()
	switch {
	case slices.Contains(pipeline.KeyNames(t.Key), c.Name):
		return d, refusal.Coded(code.Destination, fmt.Sprintf("the destination %s is a column of the key", name))
	case v.stored(c.Type) == "":
		return d, refusal.Coded(code.Destination, v.notVector("the destination "+name, c),
			"name another column: a missing one is added")
	case c.Generated:
		return d, refusal.Coded(code.Destination, fmt.Sprintf("the destination %s is a generated column", name))
	case c.NotNull:
		return d, refusal.Coded(code.Destination, fmt.Sprintf("the destination %s is NOT NULL: rows without a text could not be stored, and new rows not be inserted", name),
			fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL;", t.Quoted(), database.Quote(c.Name)))
	}
	d.Exists, d.Dims, d.Stored = true, max(int(c.Modifier), 0), v.stored(c.Type)
	d.Owned, d.IntoNumber = t.OwnedByUs, c.Number
	var comment string
	if err = q.QueryRow(ctx, "SELECT coalesce(col_description($1, $2), '')", t.OID, c.Number).Scan(&comment); err != nil {
		return d, fmt.Errorf("look up comment of %s: %w", name, err)
	}
	d.Mark = markIn(comment)
	return d, nil
}
