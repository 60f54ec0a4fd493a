package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Destination is where a pipeline's vectors go and whether it is there yet.
type Destination struct {
	pipeline.Form
	Exists  bool
	Dims    int    // 0: any width
	Schema  string // where an embedding table is to be made
	MayMake bool   // the current role may make it

	Mark  string // its comment, if init made it
	Owned bool   // the current role may comment on it

	Retype []string // what makes the types of its key those of the source's, which were widened since; nil: they are
}

// FindDestination looks at the destination of a pipeline whose table and key are known, for a model's vectors; a
// width that is not known is taken to be the one there is. It returns *ConfigError when the vectors cannot go there.
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
		d, err = findEmbeddingTable(ctx, q, spec, t, v, model.Trusted)
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
			DestinationName(spec), d.Stored, spec.IntoType),
			"leave the type out to take the destination as it is, or name another destination: a missing one is created")
	}
	return d, d.unfit(spec, model)
}

// unfit returns *ConfigError when a destination cannot hold the model's vectors.
func (d Destination) unfit(spec pipeline.Spec, model Vectors) error {
	// No dense vectors are as wide as sparse ones.
	sparse := model.Sparse || model.Either && model.Dims > pipeline.StoredVector.Widest()
	switch widest := d.Stored.Widest(); {
	case model.Dims == 0:
	case sparse && !d.Stored.Takes(true):
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are sparse, and the destination %s is of type %s",
			DestinationName(spec), d.Stored),
			"sparse vectors are stored as sparsevec: leave the type out, and name a destination that is not there yet: it is made so",
			"or choose a model of dense vectors")
	case !model.Either && !d.Stored.Takes(model.Sparse):
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are dense, and the destination %s is of type sparsevec, as which they would only be larger",
			DestinationName(spec)),
			"use vector, halfvec or bit", "or choose a sparse model")
	case model.Dims > widest:
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are %d wide; pgvector stores up to %d", model.Dims, widest))
	case d.Dims != 0 && d.Dims != model.Dims:
		return refusal.Coded(code.Width, fmt.Sprintf("the model's vectors are %d wide, those of the destination %s %d", model.Dims,
			DestinationName(spec), d.Dims),
			"choose a model of that width, or another destination")
	}
	return nil
}

// DestinationName is a destination for people, quoted.
func DestinationName(spec pipeline.Spec) string {
	return spec.DestinationName()
}

func findColumn(ctx context.Context, q database.Querier, spec pipeline.Spec, t *Table, v VectorType) (d Destination,
	err error,
) {
	c, ok := t.Column(spec.IntoColumn)
	if !ok {
		return d, nil
	}
	name := DestinationName(spec)
	switch {
	case slices.Contains(KeyNames(t.Key), c.Name):
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
