package database

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/pgvector/pgvector-go"
	pgxvector "github.com/pgvector/pgvector-go/pgx"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// registerVectors makes a connection send pgvector.Vector and pipeline.Sparse, alone and in arrays, in binary. The OIDs
// come from the catalog, because the extension's schema is rarely in our search_path; 0: the server has no such type.
// Stored vectors are read from the raw bytes of an answer (pipeline.Stored).
func registerVectors(m *pgtype.Map, vector, array, sparse, sparseArray uint32) {
	register := func(name string, oid, array uint32, codec pgtype.Codec, one, several any) {
		t := &pgtype.Type{Name: name, OID: oid, Codec: codec}
		m.RegisterType(t)
		m.RegisterType(&pgtype.Type{Name: "_" + name, OID: array, Codec: &pgtype.ArrayCodec{ElementType: t}})
		m.RegisterDefaultPgType(one, name)
		m.RegisterDefaultPgType(several, "_"+name)
	}
	if vector != 0 && array != 0 {
		register("vector", vector, array, pgxvector.VectorCodec{}, pgvector.Vector{}, []pgvector.Vector{})
	}
	if sparse != 0 && sparseArray != 0 {
		register("sparsevec", sparse, sparseArray, sparseCodec{}, pipeline.Sparse{}, []pipeline.Sparse{})
	}
}

// sparseCodec sends pipeline.Sparse as pgvector's type sparsevec.
type sparseCodec struct{ pgxvector.SparseVectorCodec }

func (sparseCodec) PlanEncode(_ *pgtype.Map, _ uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(pipeline.Sparse); !ok {
		return nil
	}
	return encodeSparse{text: format == pgtype.TextFormatCode}
}

type encodeSparse struct{ text bool }

func (e encodeSparse) Encode(value any, buf []byte) ([]byte, error) {
	v, ok := value.(pipeline.Sparse)
	if !ok {
		return nil, fmt.Errorf("encode sparsevec: unexpected %T", value)
	}
	raw, err := v.AppendBinary(buf)
	if err == nil && e.text {
		return v.AppendText(buf), nil
	}
	return raw, err // also when text is tried because binary is not available
}
