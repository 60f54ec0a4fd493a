package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/embedsidecar/embedsidecar/internal/code"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// maxDims is the widest dense vector that pgvector stores.
const maxDims = 16000

// Vectors is what a model's vectors look like, as far as a destination must fit them.
type Vectors struct {
	Dims   int  // 0: not known
	Sparse bool // only the numbers that are not zero

	Either bool // whether they are sparse is not known: what is there was made to fit
}

// VectorType is pgvector in this database: its schema, and the types that a destination may have.
type VectorType struct {
	Schema  string
	Version string
	OIDs    map[pipeline.Stored]uint32 // 0: this version does not have it
}

// Extension returns the schema, quoted.
func (v VectorType) Extension() string { return database.Quote(v.Schema) }

// stored returns which type a number stands for, or "".
func (v VectorType) stored(oid uint32) pipeline.Stored {
	for stored, known := range v.OIDs {
		if known == oid && known != 0 {
			return stored
		}
	}
	return ""
}

// Definition returns a type with its width, as a column is defined.
func (v VectorType) Definition(stored pipeline.Stored, dims int) string {
	if stored == pipeline.StoredBit {
		return fmt.Sprintf("bit(%d)", dims)
	}
	return fmt.Sprintf("%s(%d)", database.Quote(v.Schema, stored.Name()), dims)
}

// FindVector looks up the types. It returns *ConfigError when the extension is not installed.
func FindVector(ctx context.Context, q database.Querier) (VectorType, error) {
	var v VectorType
	var vector, half, sparse uint32
	err := q.QueryRow(ctx, sqlfiles.Query("vector_types")).Scan(&v.Schema, &v.Version, &vector, &half, &sparse)
	v.OIDs = map[pipeline.Stored]uint32{
		pipeline.StoredVector: vector, pipeline.StoredHalfvec: half,
		pipeline.StoredSparse: sparse,
	}
	if half != 0 { // binary_quantize came with it
		v.OIDs[pipeline.StoredBit] = pgtype.BitOID
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return v, refusal.Coded(code.Pgvector, "the extension vector is not installed in this database",
			"CREATE EXTENSION vector; (superuser, or the owner of the database where the server trusts the extension)")
	}
	if err != nil {
		return v, fmt.Errorf("look up type vector: %w", err)
	}
	return v, nil
}

// unknown returns *ConfigError when the configured type of a destination cannot be had here.
func (v VectorType) unknown(stored pipeline.Stored) error {
	switch {
	case stored == "" || v.OIDs[stored] != 0:
		return nil
	case stored == pipeline.StoredHalfvec || stored == pipeline.StoredBit || stored == pipeline.StoredSparse:
		return refusal.Coded(code.Pgvector, fmt.Sprintf("a destination of type %s needs pgvector 0.7 or newer; this database has %s",
			stored, v.Version),
			"ALTER EXTENSION vector UPDATE; (after installing a newer one on the server)")
	}
	return refusal.Coded(code.Pgvector, fmt.Sprintf("a destination cannot be of type %s", stored),
		"vector, halfvec, bit and sparsevec are possible")
}

// notVector says what is wrong with a column whose type is none of ours.
func (v VectorType) notVector(what string, c Column) string {
	return fmt.Sprintf("%s is of type %s, not %s", what, c.TypeName, database.Quote(v.Schema, "vector"))
}
