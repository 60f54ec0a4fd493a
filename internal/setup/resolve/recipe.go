package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// The recipe of a generation is what its vectors are made of, besides the model, and how they are stored: the text, how
// it is cut, and the type. Filter and ignore are none of it: they say which rows have a vector, and when it is made.

// SameRecipe compares recipes as they are written; types are compared by HasRecipe.
func SameRecipe(a, b pipeline.Spec) bool {
	return a.Text == b.Text && slices.Equal(a.Columns, b.Columns) && a.Joins.String() == b.Joins.String() &&
		a.Chunking == b.Chunking
}

// WithRecipe is a pipeline with the recipe of another. Its destination has the type that it has.
func WithRecipe(spec, of pipeline.Spec) pipeline.Spec {
	spec.Text, spec.Columns, spec.Joins, spec.Chunking, spec.IntoType = of.Text, of.Columns, of.Joins, of.Chunking, ""
	return spec
}

// HasRecipe reports whether the pipeline is set up with the recipe of a configured one. Where that names no type any
// will do.
func (s *Stored) HasRecipe(ctx context.Context, q database.Querier, configured pipeline.Spec) (bool, error) {
	set := s.Spec()
	if !SameRecipe(configured, set) || configured.IntoType == "" {
		return SameRecipe(configured, set), nil
	}
	var name string
	err := q.QueryRow(ctx, `SELECT t.typname FROM pg_catalog.pg_attribute AS a
			JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
		WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped`,
		set.VectorTable(), set.VectorColumn()).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) { // who looks at the destination tells of it
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the type of the vectors of pipeline %q: %w", s.Name, err)
	}
	return name == string(configured.IntoType), nil
}

// BesideOf returns the other generation of a pipeline, with the names that columns have now, or nil.
func (s *Stored) BesideOf(all []Stored) *Stored {
	for i := range all {
		if all[i].Beside == s.PipelineID {
			return all[i].Current()
		}
	}
	return nil
}
