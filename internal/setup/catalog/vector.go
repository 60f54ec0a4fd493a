package catalog

import (
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

// Vectors is what a model's vectors look like, as far as a destination must fit them.
type Vectors struct {
	Dims   int  // 0: not known
	Sparse bool // only the numbers that are not zero

	Either bool // whether they are sparse is not known: what is there was made to fit

	// Promised is the schema in which pgvector is about to be installed, for a plan that begins with that; "": what is
	// not there is missing
	Promised string

	Trusted uint32 // an embedding table that was looked at for strangers already; 0: none
}

// VectorType is what this database has to keep vectors in: the types that a destination may have, and the schema of
// pgvector, where it is installed.
type VectorType struct {
	Schema  string
	Version string
	OIDs    map[pipeline.Stored]uint32 // of those that can be had
}

// Extension returns the schema, quoted.
func (v VectorType) Extension() string { return database.Quote(v.Schema) }

// stored returns which type a number stands for, or "".
func (v VectorType) stored(oid uint32) pipeline.Stored {
	for stored, known := range v.OIDs {
		if known == oid {
			return stored
		}
	}
	return ""
}

// FindVector looks up the types. It returns *ConfigError when there are none, because the extension is neither
// installed nor promised.
func FindVector(ctx context.Context, q database.Querier, promised string) (v VectorType, err error) {
	var ofPgvector map[string]uint32
	err = q.QueryRow(ctx, sqlfiles.Query("vector_types"), pgx.StrictNamedArgs{"types": pipeline.StoredTypes()}).
		Scan(&v.Schema, &v.Version, &ofPgvector)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return v, fmt.Errorf("look up types of vectors: %w", err)
	}
	v.OIDs = map[pipeline.Stored]uint32{}
	if v.Version == "" && promised != "" { // no column has the type 0
		v.Schema = promised
		for _, name := range pipeline.StoredTypes() {
			v.OIDs[pipeline.Stored(name)] = 0
		}
		return v, nil
	}
	for _, name := range pipeline.StoredTypes() {
		stored := pipeline.Stored(name)
		oid := stored.OID()
		if oid == 0 {
			oid = ofPgvector[name]
		}
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

// unknown returns *ConfigError when a destination of a type cannot be had here.
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

// notVector says what is wrong with a column whose type is none of ours.
func (v VectorType) notVector(what string, c Column) string {
	return fmt.Sprintf("%s is of type %s, not %s", what, c.TypeName, database.Quote(v.Schema, "vector"))
}
