package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// defaultSchema is the schema of source tables without one. The search_path is not used: it could differ between
// sessions.
const defaultSchema = "public"

// ParsePipeline reads the one-line form of a pipeline:
//
//	public.docs: title, body -> embedding
//	public.docs: title, body -> table docs_embedding
//	"Weird Schema"."Doc""s": "Body Text" -> table "Odd"."t"
//
// Identifiers are written as in SQL: unquoted ASCII letters fold to lower case; in double quotes every character counts
// and "" is one quote. No identifier may be longer than 63 bytes, because Postgres would truncate it. A source table
// without a schema is in public. An embedding table without one is in the schema of its source table, and IntoSchema
// stays empty.
//
// The result is enabled, has normal priority and the table's name ("public.docs"). Errors are of type *ParseError.
func ParsePipeline(s string) (pipeline.Spec, error) {
	sc := &scanner{what: "pipeline", input: s}
	spec := newSpec()
	var err error
	if spec.Schema, spec.Table, err = sc.table("a source table"); err != nil {
		return pipeline.Spec{}, err
	}
	spec.Schema = cmp.Or(spec.Schema, defaultSchema)
	if err = sc.symbol(":", `":" and the columns to embed`); err != nil {
		return pipeline.Spec{}, err
	}
	if spec.Columns, err = sc.columns(); err != nil {
		return pipeline.Spec{}, err
	}
	if err = sc.symbol("->", `"," and another column, or "->" and a destination`); err != nil {
		return pipeline.Spec{}, err
	}
	at := sc.skipSpace()
	if sc.keyword("table") {
		if spec.IntoSchema, spec.IntoTable, err = sc.table("the name of an embedding table"); err != nil {
			return pipeline.Spec{}, err
		}
	} else if spec.IntoColumn, err = sc.ident(
		`a destination: the name of a vector column, or "table" and the name of an embedding table`); err != nil {
		return pipeline.Spec{}, err
	}
	if err = sc.end("the end of the pipeline"); err != nil {
		return pipeline.Spec{}, err
	}
	if msg := conflict(spec); msg != "" {
		return pipeline.Spec{}, sc.failAt(at, msg)
	}
	spec.Name = tableName(spec.Schema, spec.Table)
	return spec, nil
}

// Shortcut makes a pipeline from the flags --table, --columns (once with commas, or several times), and either --into
// (a column) or --into-table. It reads identifiers as ParsePipeline does. Errors are of type *ParseError, except for a
// missing flag.
func Shortcut(table string, columns []string, into, intoTable string) (pipeline.Spec, error) {
	spec := newSpec()
	var err error
	switch {
	case table == "":
		return spec, mistake("--table is missing: name the source table, as in --table public.docs")
	case len(columns) == 0:
		return spec, mistake("--columns is missing: name the columns to embed, as in --columns title,body")
	case into == "" && intoTable == "":
		return spec, mistake("a destination is missing: --into COLUMN for a vector column of the table, --into-table TABLE for an embedding table")
	case into != "" && intoTable != "":
		return spec, mistake("--into and --into-table exclude each other: a pipeline has one destination")
	}
	if spec.Schema, spec.Table, err = parseTable("--table", table); err != nil {
		return spec, err
	}
	spec.Schema = cmp.Or(spec.Schema, defaultSchema)
	if spec.Columns, err = parseColumns("--columns", strings.Join(columns, ",")); err != nil {
		return spec, err
	}
	if into != "" {
		spec.IntoColumn, err = parseIdent("--into", into)
	} else {
		spec.IntoSchema, spec.IntoTable, err = parseTable("--into-table", intoTable)
	}
	if err != nil {
		return spec, err
	}
	if msg := conflict(spec); msg != "" {
		return spec, mistake(msg)
	}
	spec.Name = tableName(spec.Schema, spec.Table)
	return spec, nil
}

// EmbeddingTable returns the default name of the embedding table of a source table, in its schema; both are written as
// for Shortcut.
func EmbeddingTable(table string) (string, error) {
	const suffix, longest = "_embedding", 63 // bytes of a name
	_, name, err := parseTable("--table", table)
	if err != nil {
		return "", err
	}
	for len(name)+len(suffix) > longest {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return quoteIdent(name + suffix), nil
}

// FormatPipeline returns the one-line form: ParsePipeline of the result gives the same table, columns and destination.
// It omits what that form cannot express (text, filter, model, priority).
func FormatPipeline(spec pipeline.Spec) string {
	var b strings.Builder
	b.WriteString(tableName(spec.Schema, spec.Table))
	b.WriteString(": ")
	for i, column := range spec.Columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteIdent(column))
	}
	b.WriteString(" -> ")
	b.WriteString(FormatDestination(spec))
	return b.String()
}

// FormatDestination returns the part after the arrow: "embedding" or "table docs_embedding".
func FormatDestination(spec pipeline.Spec) string {
	if spec.InSource() {
		if spec.IntoColumn == "table" {
			return `"table"` // unquoted, it would be the keyword for an embedding table
		}
		return quoteIdent(spec.IntoColumn)
	}
	return "table " + tableName(spec.IntoSchema, spec.IntoTable)
}

func newSpec() pipeline.Spec { return pipeline.Spec{Priority: pipeline.Normal, Enabled: true} }

// tableName returns schema.table for SQL, quoted only where needed.
func tableName(schema, table string) string {
	if schema == "" {
		return quoteIdent(table)
	}
	return quoteIdent(schema) + "." + quoteIdent(table)
}

// LongName is the name of a pipeline whose table's name is taken: "public.docs:embedding".
func LongName(spec pipeline.Spec) string {
	destination := quoteIdent(spec.IntoColumn)
	if !spec.InSource() {
		destination = tableName(spec.IntoSchema, spec.IntoTable)
	}
	return tableName(spec.Schema, spec.Table) + ":" + destination
}

// conflict describes parts that are valid only without each other, or returns "".
func conflict(spec pipeline.Spec) string {
	for _, column := range spec.Columns {
		if spec.InSource() && column == spec.IntoColumn {
			return "column " + quoteIdent(column) +
				" is both embedded and the destination: each vector would change the text it was made of"
		}
	}
	if !spec.InSource() && spec.Table == spec.IntoTable && (spec.IntoSchema == "" || spec.IntoSchema == spec.Schema) {
		return "the source table cannot be its own embedding table: give another name, or a column without \"table\""
	}
	return ""
}

// ParseTable reads the name of a source table, as ParsePipeline does. Errors are of type *ParseError.
func ParseTable(name string) (schema, table string, err error) {
	if schema, table, err = parseTable("table", name); schema == "" {
		schema = defaultSchema
	}
	return schema, table, err
}

// ParseNames reads up to three names separated by dots, such as those of a schema, a table and a column. Errors are of
// type *ParseError.
func ParseNames(what, s string) (names []string, err error) {
	const most = 3
	sc := &scanner{what: what, input: s}
	for {
		name, err := sc.ident("the name of a column or table")
		if err != nil {
			return nil, err
		}
		if names = append(names, name); sc.skipSpace() == len(s) || s[sc.pos] != '.' || len(names) == most {
			return names, sc.end("the end of the name")
		}
		sc.pos++
	}
}

func parseTable(what, s string) (schema, table string, err error) {
	sc := &scanner{what: what, input: s}
	if schema, table, err = sc.table("the name of a table"); err != nil {
		return "", "", err
	}
	return schema, table, sc.end("the end of the table's name")
}

func parseColumns(what, s string) ([]string, error) {
	sc := &scanner{what: what, input: s}
	columns, err := sc.columns()
	if err != nil {
		return nil, err
	}
	return columns, sc.end(`"," and another column`)
}

func parseIdent(what, s string) (string, error) {
	sc := &scanner{what: what, input: s}
	name, err := sc.ident("the name of a column")
	if err != nil {
		return "", err
	}
	return name, sc.end("the end of the column's name")
}

// joinLevels is the maximum nesting of joins.
const joinLevels = 2

// writtenJoin is a join in a file.
type writtenJoin struct {
	Table string            `json:"table"`
	On    map[string]string `json:"on"`
	Text  string            `json:"text"`
	As    string            `json:"as"`
	Joins []json.RawMessage `json:"joins"`
}

// parseJoins reads a pipeline's joins from JSON.
func parseJoins(text string) (pipeline.Joins, error) {
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, errors.New("expected a list of joins: [{table: tags, on: {article_id: id}, text: ...}]")
	}
	return joinsOf(list, "", 1)
}

func joinsOf(list []json.RawMessage, path string, level int) (joins pipeline.Joins, err error) {
	if level > joinLevels && len(list) > 0 {
		return nil, fmt.Errorf("%s: joins go %d levels deep", path, joinLevels)
	}
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		j, err := joinOf(raw, at, level)
		if err != nil {
			return nil, err
		}
		joins = append(joins, j)
	}
	return joins, nil
}

func joinOf(raw json.RawMessage, at string, level int) (j pipeline.Join, err error) {
	fail := func(format string, args ...any) error { return fmt.Errorf(at+": "+format, args...) }
	var w writtenJoin
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return j, fail("%s: a join has table, on, text, as and joins", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch {
	case w.Table == "":
		return j, fail("table is missing: name the table whose rows have a part in the text")
	case len(w.On) == 0:
		return j, fail("on is missing: on: {COLUMN OF %s: COLUMN OF THE ROW}", w.Table)
	case strings.TrimSpace(w.Text) == "" || invalidAt(w.Text) >= 0 || strings.ContainsRune(w.Text, 0):
		return j, fail("text is missing: give SQL over the rows of %s, such as string_agg(name, ', ' ORDER BY name)", w.Table)
	}
	if j.Schema, j.Table, err = parseTable("table", w.Table); err != nil {
		return j, fail("table: %w", err)
	}
	if j.Text, j.As = strings.TrimSpace(w.Text), j.Table; w.As != "" {
		if j.As, err = parseIdent("as", w.As); err != nil {
			return j, fail("%w", err)
		}
	}
	for _, column := range slices.Sorted(maps.Keys(w.On)) {
		var on pipeline.On
		if on.Column, err = parseIdent("on", column); err == nil {
			on.Of, err = parseIdent("on", w.On[column])
		}
		if err != nil {
			return j, fail("%w", err)
		}
		j.On = append(j.On, on)
	}
	slices.SortFunc(j.On, func(a, b pipeline.On) int { return cmp.Compare(a.Column, b.Column) })
	j.Joins, err = joinsOf(w.Joins, at+".joins", level+1)
	return j, err
}

// joinsSchema is the JSON schema of a list of joins.
func joinsSchema(levels int) map[string]any {
	text := map[string]any{"type": "string"}
	keys := map[string]any{
		"table": text, "text": text, "as": text,
		"on": map[string]any{"type": "object", "additionalProperties": text, "minProperties": 1},
	}
	if levels > 1 {
		keys["joins"] = joinsSchema(levels - 1)
	}
	return map[string]any{"type": []string{"array", "null"}, "items": map[string]any{
		"type": "object", "properties": keys, "required": []string{"table", "on", "text"}, "additionalProperties": false,
	}}
}
