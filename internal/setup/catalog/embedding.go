package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// ownColumn is one of our columns of an embedding table besides the key.
type ownColumn struct{ Name, Definition, typeName string }

func ownColumns(v VectorType, stored pipeline.Stored, dims int) []ownColumn {
	return []ownColumn{
		{"chunk_no", "integer NOT NULL DEFAULT 0", "integer"},
		{"generation", "integer NOT NULL", "integer"},
		{"text_hash", "bytea NOT NULL", "bytea"},
		{"embedded_at", "timestamptz NOT NULL", "timestamp with time zone"},
		{"embedding", stored.Column(v.Extension(), dims) + " NOT NULL", ""},
	}
}

// ChunkColumns are the additional columns of an embedding table of chunks. They may be NULL, because the table may have
// been made for whole texts.
var ChunkColumns = []ownColumn{
	{"start_byte", "integer", "integer"},
	{"end_byte", "integer", "integer"},
	{"context", "text", "text"},
	{"chunk_text", "text", "text"},
}

// readersOnly revokes what default privileges grant on a new table, except SELECT: roles that can create triggers or
// foreign keys on it could run code with the writer's privileges, which are ours. SELECT stays with roles that may read
// every column and row of the source tables, because the new table may hold all texts.
func readersOnly(spec pipeline.Spec, t *Table) string {
	sources := []string{database.Literal(t.Quoted()) + "::regclass"}
	for _, link := range (&pipeline.Pipeline{Spec: spec}).Links() {
		joined := database.Quote(link.Table().Schema, link.Table().Table)
		sources = append(sources, database.Literal(joined)+"::regclass")
	}
	return "DO " + database.Literal(fmt.Sprintf(`DECLARE other record; BEGIN
    FOR other IN
        SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS name,
               bool_or(a.privilege_type = 'SELECT') AND NOT EXISTS (
                   SELECT FROM pg_class AS s LEFT JOIN pg_roles AS r ON r.oid = a.grantee
                   WHERE  s.oid = ANY (ARRAY[%[2]s])
                          AND (NOT has_table_privilege(coalesce(r.rolname, 'public'), s.oid, 'SELECT')
                              OR s.relrowsecurity AND NOT coalesce(r.rolsuper OR r.rolbypassrls, false))) AS reads
        FROM   pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
        WHERE  c.oid = %[1]s::regclass AND a.grantee <> c.relowner
        GROUP  BY a.grantee
    LOOP
        EXECUTE format('REVOKE ALL ON %%s FROM %%s', %[1]s::regclass, other.name);
        IF other.reads THEN
            EXECUTE format('GRANT SELECT ON %%s TO %%s', %[1]s::regclass, other.name);
        END IF;
    END LOOP;
END`, database.Literal(spec.Into()), strings.Join(sources, ", ")))
}

// EmbeddingTable returns the statements that make the embedding table of a pipeline in a form.
func EmbeddingTable(spec pipeline.Spec, t *Table, v VectorType, form pipeline.Form, dims int) []string {
	var lines []string
	for _, k := range t.Key {
		c, _ := t.Column(k.Name)
		// The constraints of a domain would run in our statements, and may be added later.
		line := database.Quote(k.Name) + " " + c.BaseName
		if c.Collation != "" {
			line += " COLLATE " + c.Collation
		}
		lines = append(lines, line+" NOT NULL")
	}
	own := ownColumns(v, form.Stored, dims)
	if form.Chunked || spec.Chunking.On() {
		own = append(own, ChunkColumns...)
	}
	for _, c := range own {
		lines = append(lines, database.Quote(c.Name)+" "+c.Definition)
	}
	lines = append(lines, "PRIMARY KEY ("+database.QuoteAll(pipeline.KeyNames(t.Key))+`, "chunk_no")`)
	sql := []string{
		"CREATE TABLE " + spec.Into() + " (\n    " + strings.Join(lines, ",\n    ") + "\n)",
		readersOnly(spec, t),
	}
	if spec.Chunking.On() {
		sql = append(sql, HashIndex(spec))
	}
	return sql
}

// findEmbeddingTable inspects the embedding table. An existing one must have our shape. It may have further columns
// that we need not fill.
func findEmbeddingTable(ctx context.Context, q pgx.Tx, spec pipeline.Spec, t *Table, v VectorType, known *Known,
) (d Destination, err error) {
	for _, c := range append(ownColumns(v, "", 1), ChunkColumns...) {
		if slices.Contains(pipeline.KeyNames(t.Key), c.Name) && (spec.Chunking.On() || !slices.Contains(ChunkColumns, c)) {
			return d, refusal.Coded(code.Destination, fmt.Sprintf("the key of %s has a column %q, as the embedding table needs for itself",
				t.Quoted(), c.Name),
				"use a column of the table as destination, or rename the column")
		}
	}
	schema := spec.Destination().Schema
	into, err := known.table(ctx, q, Want{Schema: schema, Name: spec.IntoTable})
	if err != nil {
		return d, err
	}
	if into == nil {
		err = d.room(ctx, q, schema)
		return d, err
	}
	name := into.Quoted()
	if into.OID == t.OID {
		return d, refusal.Coded(code.Destination, fmt.Sprintf("the embedding table %s is the source table", name))
	}
	other := []string{"name another table: a missing one is created"}
	if into.Kind != "r" && into.Kind != "p" {
		return d, refusal.Coded(code.Destination,
			fmt.Sprintf("%s is %s, not an embedding table", name, kinds[into.Kind]), other...)
	}
	if !into.examined { // reads the owners' mark before the checks below
		if err := examine(ctx, q, into); err != nil {
			return d, err
		}
	}
	if known == nil || !known.trusted[into.OID] {
		if err := Untrusted(ctx, q, into.OID); err != nil {
			return d, refusal.About(spec.Name, err)
		}
	}
	if into.Unlogged != "" {
		return d, refusal.Coded(code.Destination, fmt.Sprintf("the embedding table %s is unlogged: a crash of the server empties it",
			into.Unlogged), "ALTER TABLE "+into.Unlogged+" SET LOGGED;")
	}
	widening := into.widening(t)
	switch {
	case widening == nil:
	case markIn(into.Comment) != "":
		d.Retype = widening
	case into.lacks(t, v, true) == "": // else it is any table of the user's, which must not be altered
		other = append([]string{widening[0] + ";"}, other...)
	}
	if problem := into.lacks(t, v, d.Retype != nil); problem != "" {
		return d, refusal.Coded(code.Destination,
			fmt.Sprintf("%s is not an embedding table for %s: %s", name, t.Quoted(), problem), other...)
	}
	if want := append(pipeline.KeyNames(t.Key), "chunk_no"); !slices.Equal(into.Primary, want) {
		return d, refusal.Coded(code.Destination, fmt.Sprintf("%s is not an embedding table for %s: its primary key is (%s), want (%s)",
			name, t.Quoted(), database.QuoteAll(into.Primary), database.QuoteAll(want)), other...)
	}
	if into.RowSecurity {
		return d, refusal.Coded(code.RLS, fmt.Sprintf("the embedding table %s has row-level security that hides rows from this role",
			name), into.bypass()...)
	}
	d.Table, d.HashIndexed, d.Chunked = into, into.HashIndexed, into.hasColumns(ChunkColumns)
	embedding, _ := into.Column("embedding")
	d.Mark, d.Owned = markIn(into.Comment), into.OwnedByUs
	d.Exists, d.IntoOID, d.Dims, d.Stored = true, into.OID, max(int(embedding.Modifier), 0), v.stored(embedding.Type)
	d.IntoOwners, d.IntoParts = into.OwnerMark, into.Kind == "p"
	return d, nil
}

// room checks the schema in which an embedding table will be made.
func (d *Destination) room(ctx context.Context, q database.Querier, schema string) error {
	d.Schema = schema
	err := q.QueryRow(ctx, "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1",
		schema).Scan(&d.MayMake)
	if errors.Is(err, pgx.ErrNoRows) {
		return refusal.Coded(code.Destination, fmt.Sprintf("there is no schema %s for the embedding table", database.Quote(schema)),
			"CREATE SCHEMA "+database.Quote(schema)+";")
	}
	return wrap.Errorf(err, "look up schema %s", database.Quote(schema))
}

// lacks describes how a table's columns differ from those of an embedding table of the source, or returns "". With
// widening, the types of the key will be altered and may differ.
func (t *Table) lacks(source *Table, v VectorType, widening bool) string {
	known := map[string]bool{}
	for _, k := range source.Key {
		known[k.Name] = true
		want, _ := source.Column(k.Name)
		got, ok := t.Column(k.Name)
		switch {
		case !ok:
			return fmt.Sprintf("it has no column %q", k.Name)
		case got.Type != want.Type && got.Type != want.Base && (!widening || !widens(got, want)):
			return fmt.Sprintf("its column %q is of type %s, want %s", k.Name, got.TypeName, want.BaseName)
		}
	}
	for _, own := range ownColumns(v, "", 1) {
		known[own.Name] = true
		got, ok := t.Column(own.Name)
		switch {
		case !ok:
			return fmt.Sprintf("it has no column %q", own.Name)
		case own.typeName != "" && got.TypeName != own.typeName:
			return fmt.Sprintf("its column %q is of type %s, want %s", own.Name, got.TypeName, own.typeName)
		case own.typeName == "" && v.stored(got.Type) == "":
			return v.notVector(fmt.Sprintf("its column %q", own.Name), got)
		}
	}
	for _, c := range t.Columns {
		if !known[c.Name] && c.NotNull && !c.Generated && !c.Default {
			return fmt.Sprintf("its column %q is NOT NULL without a default: give it one, or let it be NULL", c.Name)
		}
	}
	return ""
}

// widens reports whether a type holds every value of another and prints it identically, so that stored values do not
// change.
func widens(from, to Column) bool {
	switch from.Type {
	case pgtype.Int2OID:
		return to.Type == pgtype.Int4OID || to.Type == pgtype.Int8OID
	case pgtype.Int4OID:
		return to.Type == pgtype.Int8OID
	case pgtype.VarcharOID:
		return to.Type == pgtype.TextOID || to.Type == from.Type && from.Modifier >= 0 &&
			(to.Modifier < 0 || to.Modifier > from.Modifier)
	}
	return false
}

// widening returns the statement that changes the key types of an embedding table to those of its source, or nil unless
// these hold every old value.
func (t *Table) widening(source *Table) []string {
	var changes []string
	for _, k := range source.Key {
		want, _ := source.Column(k.Name)
		got, ok := t.Column(k.Name)
		if !ok || !widens(got, want) {
			continue
		}
		change := "ALTER COLUMN " + database.Quote(k.Name) + " TYPE " + want.BaseName
		if want.Collation != "" {
			change += " COLLATE " + want.Collation
		}
		changes = append(changes, change)
	}
	if changes == nil {
		return nil
	}
	return []string{"ALTER TABLE " + t.Quoted() + " " + strings.Join(changes, ", ")}
}

// hasColumns reports whether a table has some of our columns with their types.
func (t *Table) hasColumns(columns []ownColumn) bool {
	for _, own := range columns {
		if got, ok := t.Column(own.Name); !ok || got.TypeName != own.typeName {
			return false
		}
	}
	return true
}

// HashIndex returns the statement that makes the index for lookups of a vector by its text's hash.
func HashIndex(spec interface{ Into() string }) string {
	return "CREATE INDEX ON " + spec.Into() + " (text_hash)"
}

// Converted returns the SQL that converts a column with vectors of any program to the type of a destination. If the
// column's type has no width, it also returns the SQL of the vector's width. ok is false if there is no conversion.
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

// HoldsVectors reports whether a column may hold vectors: a type of pgvector, or an array of numbers.
func (v VectorType) HoldsVectors(c Column) bool {
	return v.stored(c.Type) != "" || c.Type == pgtype.Float4ArrayOID || c.Type == pgtype.Float8ArrayOID
}
