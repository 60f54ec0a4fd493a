package pipeline

import "github.com/jackc/pgx/v5"

// Destination is where a pipeline's vectors go, beside the source table itself. Two of one source table are the same
// if they are equal.
type Destination struct {
	Column        string // of the source table; "": an embedding table
	Schema, Table string // of the embedding table
}

// Destination returns where the vectors go.
func (s Spec) Destination() Destination {
	if s.ToColumn() {
		return Destination{Column: s.IntoColumn}
	}
	d := Destination{Schema: s.IntoSchema, Table: s.IntoTable}
	if d.Schema == "" {
		d.Schema = s.Schema
	}
	return d
}

// ToColumn reports whether vectors go to a column of the source row.
func (s Spec) ToColumn() bool { return s.IntoColumn != "" }

// Into returns the embedding table's name, quoted. It has no meaning for a column destination.
func (s Spec) Into() string {
	d := s.Destination()
	return pgx.Identifier{d.Schema, d.Table}.Sanitize()
}

// VectorTable returns the name of the table that holds the vectors, quoted.
func (s Spec) VectorTable() string {
	if s.ToColumn() {
		return s.Source()
	}
	return s.Into()
}

// VectorColumn returns the name of the column of that table that holds them.
func (s Spec) VectorColumn() string {
	if s.ToColumn() {
		return s.IntoColumn
	}
	return "embedding"
}

// VectorOf returns the SQL of the vector of the row called alias, of the table that holds them.
func (s Spec) VectorOf(alias string) string { return alias + "." + quote(s.VectorColumn()) }

// DestinationName returns the destination's name, quoted: "public"."docs"."embedding" or "public"."docs_embedding".
// Two pipelines whose destinations have the same name would overwrite each other's vectors.
func (s Spec) DestinationName() string {
	if s.ToColumn() {
		return s.Source() + "." + quote(s.IntoColumn)
	}
	return s.Into()
}
