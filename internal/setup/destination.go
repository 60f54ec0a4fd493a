package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
)

// maxDims is the widest dense vector that pgvector stores.
const maxDims = 16000

// Vectors is what a model's vectors look like, as far as a destination must fit them.
type Vectors struct {
	Dims   int  // 0: not known
	Sparse bool // only the numbers that are not zero

	either bool // whether they are sparse is not known: what is there was made to fit
}

// vectorType is pgvector in this database: its schema, and the types that a destination may have.
type vectorType struct {
	Schema  string
	Version string
	OIDs    map[pipeline.Stored]uint32 // 0: this version does not have it
}

// extension returns the schema, quoted.
func (v vectorType) extension() string { return database.Quote(v.Schema) }

// stored returns which type a number stands for, or "".
func (v vectorType) stored(oid uint32) pipeline.Stored {
	for stored, known := range v.OIDs {
		if known == oid && known != 0 {
			return stored
		}
	}
	return ""
}

// definition returns a type with its width, as a column is defined.
func (v vectorType) definition(stored pipeline.Stored, dims int) string {
	if stored == pipeline.StoredBit {
		return fmt.Sprintf("bit(%d)", dims)
	}
	return fmt.Sprintf("%s(%d)", database.Quote(v.Schema, stored.Name()), dims)
}

// findVector looks up the types. It returns *ConfigError when the extension is not installed.
func findVector(ctx context.Context, q database.Querier) (vectorType, error) {
	var v vectorType
	var vector, half, sparse uint32
	err := q.QueryRow(ctx, `SELECT n.nspname::text, e.extversion, coalesce(max(t.oid::bigint)
		FILTER (WHERE t.typname = 'vector'), 0)::oid,
		coalesce(max(t.oid::bigint) FILTER (WHERE t.typname = 'halfvec'), 0)::oid, coalesce(max(t.oid::bigint)
		FILTER (WHERE t.typname = 'sparsevec'), 0)::oid
		FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace LEFT
		JOIN pg_type t ON t.typnamespace = e.extnamespace
		WHERE e.extname = 'vector' GROUP BY 1, 2`).Scan(&v.Schema, &v.Version, &vector, &half, &sparse)
	v.OIDs = map[pipeline.Stored]uint32{
		pipeline.StoredVector: vector, pipeline.StoredHalfvec: half,
		pipeline.StoredSparse: sparse,
	}
	if half != 0 { // binary_quantize came with it
		v.OIDs[pipeline.StoredBit] = pgtype.BitOID
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return v, &refusal.ConfigError{
			Problem: "the extension vector is not installed in this database",
			Hint:    []string{"CREATE EXTENSION vector; (superuser, or the owner of the database where the server trusts the extension)"},
		}
	}
	if err != nil {
		return v, fmt.Errorf("look up type vector: %w", err)
	}
	return v, nil
}

// unknown returns why the configured type of a destination cannot be had here, or "".
func (v vectorType) unknown(stored pipeline.Stored) (problem string, hint []string) {
	switch {
	case stored == "" || v.OIDs[stored] != 0:
		return "", nil
	case stored == pipeline.StoredHalfvec || stored == pipeline.StoredBit || stored == pipeline.StoredSparse:
		return fmt.Sprintf("a destination of type %s needs pgvector 0.7 or newer; this database has %s", stored, v.Version),
			[]string{"ALTER EXTENSION vector UPDATE; (after installing a newer one on the server)"}
	}
	return fmt.Sprintf("a destination cannot be of type %s", stored),
		[]string{"vector, halfvec, bit and sparsevec are possible"}
}

// notVector says what is wrong with a column whose type is none of ours.
func (v vectorType) notVector(what string, c column) (problem string, hint []string) {
	return fmt.Sprintf("%s is of type %s, not %s", what, c.TypeName, database.Quote(v.Schema, "vector")),
		[]string{"name another column: one that is not there yet is added"}
}

// destination is where a pipeline's vectors go and whether it is there yet.
type destination struct {
	Exists  bool
	OID     uint32          // of the embedding table; 0 for a column
	Dims    int             // 0: any width
	Stored  pipeline.Stored // its type, or what it is to be made of
	Schema  string          // where an embedding table is to be made
	MayMake bool            // the current role may make it

	Mark  string // its comment, if init made it
	Owned bool   // the current role may comment on it

	Chunked bool // it has the columns of chunks
	Indexed bool // it has an index by text_hash

	Retype []string // what makes the types of its key those of the source's, which were widened since; nil: they are
}

// findDestination looks at the destination of a pipeline whose table and key are known, for a model's vectors; a
// width that is not known is taken to be the one there is.
func findDestination(ctx context.Context, q pgx.Tx, spec pipeline.Spec, t *table, v vectorType,
	model Vectors,
) (d destination, problem string, hint []string, err error) {
	if problem, hint := v.unknown(spec.IntoType); problem != "" {
		return d, problem, hint, nil
	}
	if spec.ToColumn() {
		d, problem, hint, err = findColumn(ctx, q, spec, t, v)
	} else {
		d, problem, hint, err = findEmbeddingTable(ctx, q, spec, t, v)
	}
	if problem != "" || err != nil {
		return d, problem, hint, err
	}
	if !d.Exists {
		if d.Stored = spec.IntoType; d.Stored == "" {
			d.Stored = pipeline.StoredFor(model.Sparse)
		}
		if problem, hint := v.unknown(d.Stored); problem != "" {
			return d, problem, hint, nil
		}
		problem, hint := d.unfit(spec, model)
		return d, problem, hint, nil
	}
	if spec.IntoType != "" && spec.IntoType != d.Stored {
		return d, fmt.Sprintf("the destination %s is of type %s, not %s as configured", destinationName(spec), d.Stored,
				spec.IntoType),
			[]string{"leave the type out to take the destination as it is, or name another destination: one that is not there yet is made"}, nil
	}
	problem, hint = d.unfit(spec, model)
	return d, problem, hint, nil
}

// unfit returns why a destination cannot hold the model's vectors, or "".
func (d destination) unfit(spec pipeline.Spec, model Vectors) (problem string, hint []string) {
	widest, sparse := maxDims, model.Sparse || model.either && model.Dims > maxDims // no dense ones are that wide
	if d.Stored == pipeline.StoredSparse {
		widest = embed.MaxSparseDims
	}
	switch {
	case model.Dims == 0:
	case sparse && !d.Stored.Takes(true):
		return fmt.Sprintf("the model's vectors are sparse, and the destination %s is of type %s", destinationName(spec),
				d.Stored),
			[]string{"sparse vectors are stored as sparsevec: leave the type out, and name a destination that is not there yet: it is made so", "or choose a model of dense vectors"}
	case !model.either && !d.Stored.Takes(model.Sparse):
		return fmt.Sprintf("the model's vectors are dense, and the destination %s is of type sparsevec, as which they would only be larger", destinationName(spec)),
			[]string{"use vector, halfvec or bit", "or choose a sparse model"}
	case model.Dims > widest:
		return fmt.Sprintf("the model's vectors are %d wide; pgvector stores up to %d", model.Dims, widest), nil
	case d.Dims != 0 && d.Dims != model.Dims:
		return fmt.Sprintf("the model's vectors are %d wide, those of the destination %s %d", model.Dims,
				destinationName(spec), d.Dims),
			[]string{"choose a model of that width, or another destination"}
	}
	return "", nil
}

func destinationName(spec pipeline.Spec) string {
	if spec.ToColumn() {
		return spec.Source() + "." + database.Quote(spec.IntoColumn)
	}
	return spec.Into()
}

func findColumn(ctx context.Context, q database.Querier, spec pipeline.Spec, t *table, v vectorType) (d destination,
	problem string, hint []string, err error,
) {
	c, ok := t.column(spec.IntoColumn)
	if !ok {
		return d, "", nil, nil
	}
	name := destinationName(spec)
	switch {
	case slices.Contains(keyNames(t.Key), c.Name):
		return d, fmt.Sprintf("the destination %s is a column of the key", name), nil, nil
	case v.stored(c.Type) == "":
		problem, hint := v.notVector("the destination "+name, c)
		return d, problem, hint, nil
	case c.Generated:
		return d, fmt.Sprintf("the destination %s is a generated column", name), nil, nil
	case c.NotNull:
		return d, fmt.Sprintf("the destination %s is NOT NULL: rows without a text could not be stored, and new rows not be inserted", name),
			[]string{fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL;", t.quoted(), database.Quote(c.Name))}, nil
	}
	d.Exists, d.Dims, d.Stored = true, max(int(c.Modifier), 0), v.stored(c.Type)
	d.Owned = t.OwnedByUs
	var comment string
	if err = q.QueryRow(ctx, "SELECT coalesce(col_description($1, $2), '')", t.OID, c.Number).Scan(&comment); err != nil {
		return d, "", nil, fmt.Errorf("look up comment of %s: %w", name, err)
	}
	d.Mark = markIn(comment)
	return d, "", nil, nil
}

// ownColumn is a column of an embedding table besides the key.
type ownColumn struct{ name, definition, typeName string }

func ownColumns(v vectorType, stored pipeline.Stored, dims int) []ownColumn {
	return []ownColumn{
		{"chunk_no", "integer NOT NULL DEFAULT 0", "integer"},
		{"generation", "integer NOT NULL", "integer"},
		{"text_hash", "bytea NOT NULL", "bytea"},
		{"embedded_at", "timestamptz NOT NULL", "timestamp with time zone"},
		{"embedding", v.definition(stored, dims) + " NOT NULL", ""},
	}
}

// chunkColumns are what an embedding table of chunks has besides. They may be NULL: a table may have been one of
// whole texts before.
var chunkColumns = []ownColumn{
	{"start_byte", "integer", "integer"},
	{"end_byte", "integer", "integer"},
	{"context", "text", "text"},
	{"chunk_text", "text", "text"},
}

// embeddingTable returns the statements that make the embedding table of a pipeline.
func embeddingTable(spec pipeline.Spec, t *table, v vectorType, stored pipeline.Stored, dims int) []string {
	var lines []string
	for _, k := range t.Key {
		c, _ := t.column(k.Name)
		line := database.Quote(k.Name) + " " + c.TypeName
		if c.Collation != "" {
			line += " COLLATE " + c.Collation
		}
		lines = append(lines, line+" NOT NULL")
	}
	own := ownColumns(v, stored, dims)
	if spec.Chunking.On() {
		own = append(own, chunkColumns...)
	}
	for _, c := range own {
		lines = append(lines, database.Quote(c.name)+" "+c.definition)
	}
	lines = append(lines, "PRIMARY KEY ("+database.QuoteAll(keyNames(t.Key))+`, "chunk_no")`)
	sql := []string{"CREATE TABLE " + spec.Into() + " (\n    " + strings.Join(lines, ",\n    ") + "\n)"}
	if spec.Chunking.On() {
		sql = append(sql, hashIndex(spec))
	}
	return sql
}

// findEmbeddingTable looks at the embedding table. One that is there must have our shape; columns of the user's
// beside ours are fine as long as we need not fill them.
func findEmbeddingTable(ctx context.Context, q pgx.Tx, spec pipeline.Spec, t *table, v vectorType) (d destination,
	problem string, hint []string, err error,
) {
	for _, c := range append(ownColumns(v, "", 1), chunkColumns...) {
		if slices.Contains(keyNames(t.Key), c.name) && (spec.Chunking.On() || !slices.Contains(chunkColumns, c)) {
			return d, fmt.Sprintf("the key of %s has a column %q, as the embedding table needs for itself", t.quoted(), c.name),
				[]string{"use a column of the table as destination, or rename the column"}, nil
		}
	}
	schema := spec.IntoSchema
	if schema == "" {
		schema = spec.Schema
	}
	into, err := tableByName(ctx, q, schema, spec.IntoTable)
	if _, ok := errors.AsType[*refusal.MissingError](err); ok {
		problem, hint, err = d.room(ctx, q, schema)
		return d, problem, hint, err
	}
	if err != nil {
		return d, "", nil, err
	}
	name := into.quoted()
	if into.OID == t.OID {
		return d, fmt.Sprintf("the embedding table %s is the source table", name), nil, nil
	}
	other := []string{"name another table: one that is not there yet is made"}
	if into.Kind != "r" && into.Kind != "p" {
		return d, fmt.Sprintf("%s is %s, not an embedding table", name, kinds[into.Kind]), other, nil
	}
	if err := untrusted(ctx, q, into.OID); err != nil {
		return d, "", nil, refusal.About(spec.Name, err)
	}
	if problem, hint, err := into.durable(ctx, q); problem != "" || err != nil {
		return d, problem, hint, err
	}
	var key []string
	var comment string
	err = q.QueryRow(ctx, `SELECT coalesce((SELECT array_agg(a.attname::text ORDER BY n) FROM pg_index i CROSS
		JOIN LATERAL generate_series(0, i.indnkeyatts - 1) AS n
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] WHERE i.indrelid = $1 AND i.indisprimary),
		'{}'),
		coalesce(obj_description($1, 'pg_class'), '')`, into.OID).Scan(&key, &comment)
	if err != nil {
		return d, "", nil, fmt.Errorf("look up key of %s: %w", name, err)
	}
	widening := into.widening(t)
	switch {
	case widening == nil:
	case markIn(comment) != "":
		d.Retype = widening
	case into.lacks(t, v, true) == "": // else it is some table of the user's, which nobody should alter
		other = append([]string{widening[0] + ";"}, other...)
	}
	if problem := into.lacks(t, v, d.Retype != nil); problem != "" {
		return d, fmt.Sprintf("%s is not an embedding table for %s: %s", name, t.quoted(), problem), other, nil
	}
	if want := append(keyNames(t.Key), "chunk_no"); !slices.Equal(key, want) {
		return d, fmt.Sprintf("%s is not an embedding table for %s: its primary key is (%s), want (%s)", name, t.quoted(),
			database.QuoteAll(key), database.QuoteAll(want)), other, nil
	}
	if into.RowSecurity {
		return d, fmt.Sprintf("the embedding table %s has row-level security that hides rows from this role", name),
			into.bypass(), nil
	}
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		AND a.attnum = i.indkey[0]
		WHERE i.indrelid = $1 AND a.attname = 'text_hash' AND i.indisvalid AND i.indpred IS NULL)`,
		into.OID).Scan(&d.Indexed); err != nil {
		return d, "", nil, fmt.Errorf("look up indexes of %s: %w", name, err)
	}
	d.Chunked = into.hasColumns(chunkColumns)
	embedding, _ := into.column("embedding")
	d.Mark, d.Owned = markIn(comment), into.OwnedByUs
	d.Exists, d.OID, d.Dims, d.Stored = true, into.OID, max(int(embedding.Modifier), 0), v.stored(embedding.Type)
	return d, "", nil, nil
}

// durable returns why the server may empty an embedding table, or "".
func (t *table) durable(ctx context.Context, q database.Querier) (problem string, hint []string, err error) {
	var name *string
	err = q.QueryRow(ctx, `SELECT min(format('%I.%I', n.nspname, c.relname)) FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relpersistence <> 'p' AND (c.oid = $1 OR c.oid IN (SELECT relid FROM pg_partition_tree($1::oid::regclass)))`,
		t.OID).Scan(&name)
	if err != nil {
		return "", nil, fmt.Errorf("look up embedding table %s: %w", t.quoted(), err)
	}
	if name == nil {
		return "", nil, nil
	}
	return fmt.Sprintf("the embedding table %s is unlogged: after a crash the server empties it without a word", *name),
		[]string{"ALTER TABLE " + *name + " SET LOGGED;"}, nil
}

// room looks at the schema in which an embedding table is to be made.
func (d *destination) room(ctx context.Context, q database.Querier, schema string) (problem string, hint []string, err error) {
	d.Schema = schema
	err = q.QueryRow(ctx, "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1",
		schema).Scan(&d.MayMake)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Sprintf("there is no schema %s for the embedding table", database.Quote(schema)),
			[]string{"CREATE SCHEMA " + database.Quote(schema) + ";"}, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("look up schema %s: %w", database.Quote(schema), err)
	}
	return "", nil, nil
}

// lacks returns in what a table's columns differ from those of an embedding table of the source, or "". widening says
// that types of the key will be altered.
func (t *table) lacks(source *table, v vectorType, widening bool) string {
	known := map[string]bool{}
	for _, k := range source.Key {
		known[k.Name] = true
		want, _ := source.column(k.Name)
		got, ok := t.column(k.Name)
		switch {
		case !ok:
			return fmt.Sprintf("it has no column %q", k.Name)
		case got.Type != want.Type && (!widening || !widens(got, want)):
			return fmt.Sprintf("its column %q is of type %s, want %s", k.Name, got.TypeName, want.TypeName)
		}
	}
	for _, own := range ownColumns(v, "", 1) {
		known[own.name] = true
		got, ok := t.column(own.name)
		switch {
		case !ok:
			return fmt.Sprintf("it has no column %q", own.name)
		case own.typeName != "" && got.TypeName != own.typeName:
			return fmt.Sprintf("its column %q is of type %s, want %s", own.name, got.TypeName, own.typeName)
		case own.typeName == "" && v.stored(got.Type) == "":
			problem, _ := v.notVector(fmt.Sprintf("its column %q", own.name), got)
			return problem
		}
	}
	for _, c := range t.Columns {
		if !known[c.Name] && c.NotNull && !c.Generated && !c.Default {
			return fmt.Sprintf("its column %q is NOT NULL without a default", c.Name)
		}
	}
	return ""
}

// widens reports whether a type holds every value of another, and prints it alike, so that nothing that is stored
// changes.
func widens(from, to column) bool {
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

// widening returns the statement that gives the key of an embedding table the types that its source's has by now, if
// these hold every old value; or nil.
func (t *table) widening(source *table) []string {
	var changes []string
	for _, k := range source.Key {
		want, _ := source.column(k.Name)
		got, ok := t.column(k.Name)
		if !ok || !widens(got, want) {
			continue
		}
		change := "ALTER COLUMN " + database.Quote(k.Name) + " TYPE " + want.TypeName
		if want.Collation != "" {
			change += " COLLATE " + want.Collation
		}
		changes = append(changes, change)
	}
	if changes == nil {
		return nil
	}
	return []string{"ALTER TABLE " + t.quoted() + " " + strings.Join(changes, ", ")}
}

// retyped returns *ConfigError when the key of the source has wider types than that of the embedding table.
func (f *findings) retyped() error {
	if f.destination.Retype == nil {
		return nil
	}
	return &refusal.ConfigError{
		Pipeline: f.pipeline.Name, Problem: fmt.Sprintf(
			"the key of %s was given another type, which its embedding table %s does not have", f.table.quoted(),
			f.pipeline.Into()),
		Hint: []string{"run embedsidecar init as the owner of the embedding table: it alters the key there, and embeds nothing again", "or alter it yourself: " + f.destination.Retype[0] + ";"},
	}
}

// retype plans to give the key of an embedding table the types that its source's has.
func retype(f *findings) (a action, needed bool) {
	return action{
		Step: Step{What: "type of the key in " + f.pipeline.Into() + " as that of " + f.table.quoted() +
			" (the table is rewritten; searches wait for it)", SQL: f.destination.Retype},
		allowed: true, tables: []uint32{f.destination.OID}, // the server says so if not
	}, f.destination.Retype != nil
}
