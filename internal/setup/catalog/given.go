package catalog

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Converted returns the SQL that turns a column with vectors of any program into what a destination of a type keeps
// and, of a width that the column's type does not say, the SQL of its width. ok is false where it cannot be.
func (v VectorType) Converted(c Column, column string, to pipeline.Stored) (vector, width string, ok bool) {
	from := v.stored(c.Type)
	dense := func(s pipeline.Stored) bool { return s == pipeline.StoredVector || s == pipeline.StoredHalfvec }
	typed := func(s pipeline.Stored) string { return v.Extension() + "." + database.Quote(string(s)) }
	numbers := c.Type == pgtype.Float4ArrayOID || c.Type == pgtype.Float8ArrayOID
	switch {
	case numbers && dense(to):
		column, from = "CAST("+column+" AS "+typed(pipeline.StoredVector)+")", pipeline.StoredVector
	case from == "":
		return "", "", false
	}
	vector = column
	switch {
	case from == to:
	case dense(from) && dense(to):
		vector = "CAST(" + column + " AS " + typed(to) + ")"
	default:
		return "", "", false
	}
	if dense(from) && c.Modifier <= 0 {
		width = v.Extension() + ".vector_dims(" + column + ")"
	}
	return vector, width, true
}

// HoldsVectors reports whether a column may hold vectors: those of pgvector, or arrays of numbers.
func (v VectorType) HoldsVectors(c Column) bool {
	return v.stored(c.Type) != "" || c.Type == pgtype.Float4ArrayOID || c.Type == pgtype.Float8ArrayOID
}
