package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func spec(schema, table string, columns []string, change func(*pipeline.Spec)) pipeline.Spec {
	s := pipeline.Spec{
		Name: tableName(schema, table), Schema: schema, Table: table, Columns: columns,
		Priority: pipeline.Normal, Enabled: true,
	}
	change(&s)
	return s
}

func intoColumn(name string) func(*pipeline.Spec) {
	return func(s *pipeline.Spec) { s.IntoColumn = name }
}

func intoTable(schema, table string) func(*pipeline.Spec) {
	return func(s *pipeline.Spec) { s.IntoSchema, s.IntoTable = schema, table }
}

func TestParsePipeline(t *testing.T) {
	long := strings.Repeat("x", 63)
	tests := []struct {
		in   string
		want pipeline.Spec
	}{
		{"public.docs: title, body -> embedding", spec("public", "docs", []string{"title", "body"}, intoColumn("embedding"))},
		{"docs:body->v", spec("public", "docs", []string{"body"}, intoColumn("v"))},
		{"Docs: Title -> Embedding", spec("public", "docs", []string{"title"}, intoColumn("embedding"))},
		{"public.docs: title -> table docs_embedding", spec("public", "docs", []string{"title"},
			intoTable("", "docs_embedding"))},
		{"docs: a -> TABLE other.t", spec("public", "docs", []string{"a"}, intoTable("other", "t"))},
		{`docs: a -> table"Odd Schema"."t"`, spec("public", "docs", []string{"a"}, intoTable("Odd Schema", "t"))},
		{`docs: a -> "table"`, spec("public", "docs", []string{"a"}, intoColumn("table"))},
		{`docs: a -> tables`, spec("public", "docs", []string{"a"}, intoColumn("tables"))},
		{`"Weird Schema"."Doc""s": "Body Text" -> embedding`, spec("Weird Schema", `Doc"s`, []string{"Body Text"},
			intoColumn("embedding"))},
		{`"a.b"."c:d->e": "f,g" -> "h"`, spec("a.b", "c:d->e", []string{"f,g"}, intoColumn("h"))},
		{" \n s . t \t:\r a , b -> c \n", spec("s", "t", []string{"a", "b"}, intoColumn("c"))},
		{`Übung.ÄRGER: straße -> 向量`, spec("Übung", "Ärger", []string{"straße"}, intoColumn("向量"))},
		{"_a$1: b$ -> c", spec("public", "_a$1", []string{"b$"}, intoColumn("c"))},
		{long + ": a -> b", spec("public", long, []string{"a"}, intoColumn("b"))},
		{`docs: "A", a -> b`, spec("public", "docs", []string{"A", "a"}, intoColumn("b"))},
		{`docs: a -> table other.docs`, spec("public", "docs", []string{"a"}, intoTable("other", "docs"))},
	}
	for _, test := range tests {
		got, err := ParsePipeline(test.in)
		if err != nil {
			t.Errorf("ParsePipeline(%q): %v", test.in, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ParsePipeline(%q) (-want +got):\n%s", test.in, diff)
		}
	}
}

func TestParsePipeline_Errors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", `
pipeline: expected a source table, found the end
    
    ^`},
		{"public.docs", `
pipeline: expected ":" and the columns to embed, found the end
    public.docs
               ^`},
		{"public.docs: title, body", `
pipeline: expected "," and another column, or "->" and a destination, found the end
    public.docs: title, body
                            ^`},
		{"public.docs: title; body -> v", `
pipeline: expected "," and another column, or "->" and a destination, found ";"
    public.docs: title; body -> v
                      ^`},
		{"docs: -> v", `
pipeline: expected a column, found "->"
    docs: -> v
          ^`},
		{"docs: a ->", `
pipeline: expected a destination: the name of a vector column, or "table" and the name of an embedding table, found the end
    docs: a ->
              ^`},
		{"docs: a -> table", `
pipeline: expected the name of an embedding table, found the end
    docs: a -> table
                    ^`},
		{"docs: a -> v w", `
pipeline: expected the end of the pipeline, found "w"
    docs: a -> v w
                 ^`},
		{"db.public.docs: a -> v", `
pipeline: a table has at most two names, schema.table: the database is that of the connection
    db.public.docs: a -> v
             ^`},
		{`"docs: a -> v`, `
pipeline: this quoted identifier has no closing quote (write "" for a quote inside)
    "docs: a -> v
    ^`},
		{`"": a -> v`, `
pipeline: an identifier cannot be empty
    "": a -> v
    ^`},
		{"docs: a, A -> v", `
pipeline: column a is named twice
    docs: a, A -> v
             ^`},
		{"docs: a -> a", `
pipeline: column a is both embedded and the destination: each vector would change the text it was made of
    docs: a -> a
               ^`},
		{"docs: a -> table docs", `
pipeline: the source table cannot be its own embedding table: give another name, or a column without "table"
    docs: a -> table docs
               ^`},
		{"docs: \xff -> v", `
pipeline: an identifier must be valid UTF-8
    docs: � -> v
          ^`},
		{"docs: ü" + strings.Repeat("ö", 31) + " -> v", `
pipeline: an identifier has at most 63 bytes, this one has 64: Postgres would cut it
    docs: üööööööööööööööööööööööööööööööö -> v
          ^`},
		{"docs: a,\n 1 -> v", `
pipeline: expected a column, found "1"
     1 -> v
     ^`},
		{strings.Repeat("a", 30) + "." + strings.Repeat("b", 40) + ": " + strings.Repeat("c", 50) + "! " + strings.Repeat("d",
			50), `
pipeline: expected "," and another column, or "->" and a destination, found "!"
    ...bbbbbbbb: cccccccccccccccccccccccccccccccccccccccccccccccccc! dddddddddddddddddddddddddddddddddddddd...
                                                                   ^`},
	}
	for _, test := range tests {
		_, err := ParsePipeline(test.in)
		if _, ok := errors.AsType[*ParseError](err); !ok {
			t.Errorf("ParsePipeline(%q) = %v, want a *ParseError", test.in, err)
			continue
		}
		if got, want := err.Error(), strings.TrimPrefix(test.want, "\n"); got != want {
			t.Errorf("ParsePipeline(%q) says\n%s\nwant\n%s", test.in, got, want)
		}
	}
}

func TestShortcut(t *testing.T) {
	got, err := Shortcut("public.docs", []string{"title,body"}, "embedding", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec("public", "docs", []string{"title", "body"}, intoColumn("embedding")), got); diff != "" {
		t.Error(diff)
	}
	got, err = Shortcut(`"Docs"`, []string{"title", `"Body, whole"`}, "", "x.docs_embedding")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec("public", "Docs", []string{"title", "Body, whole"}, intoTable("x", "docs_embedding")),
		got); diff != "" {
		t.Error(diff)
	}

	for want, args := range map[string][4]string{
		"--table is missing":                {"", "a", "v", ""},
		"--columns is missing":              {"t", "", "v", ""},
		"a destination is missing":          {"t", "a", "", ""},
		"exclude each other":                {"t", "a", "v", "w"},
		"--table: expected the end":         {"t t", "a", "v", ""},
		"--columns: expected a column":      {"t", "a,", "v", ""},
		"--columns: expected \",\"":         {"t", "a b", "v", ""},
		"--into: expected the name":         {"t", "a", "1", ""},
		"--into: expected the end":          {"t", "a", "v.w", ""},
		"--into-table: expected the name":   {"t", "a", "", "."},
		"both embedded and the destination": {"t", "a", "a", ""},
	} {
		var columns []string
		if args[1] != "" {
			columns = []string{args[1]}
		}
		if _, err := Shortcut(args[0], columns, args[2], args[3]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Shortcut(%q) = %v, want %q", args, err, want)
		}
	}
}

func FuzzParsePipeline(f *testing.F) {
	for _, seed := range []string{
		"public.docs: title, body -> embedding", "docs:a->v", `"Weird Schema"."Doc""s": "Body Text" -> table "Odd"."t"`,
		`docs: a -> "table"`, "docs: a -> table x.y", "Übung: ÄB -> 向量", "\"\x00\": a -> b", "a\xff:b->c", "a..b",
		`"""": "->" -> ":"`,
		"t: c ->\u00a0v", "t: $ -> v", "t: a,,b -> v", "--", "'; DROP TABLE docs; --", strings.Repeat("a", 64) + ": b -> c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParsePipeline(in)
		if err != nil {
			var parse *ParseError
			if !errors.As(err, &parse) {
				t.Fatalf("%q: %v is no *ParseError", in, err)
			}
			if parse.Offset < 0 || parse.Offset > len(in) || parse.Error() == "" {
				t.Fatalf("%q: offset %d", in, parse.Offset)
			}
			return
		}
		for _, name := range append([]string{got.Schema, got.Table, got.IntoColumn + got.IntoTable}, got.Columns...) {
			if name == "" || len(name) > maxIdent || strings.ContainsRune(name, 0) {
				t.Fatalf("%q: identifier %q", in, name)
			}
		}
		line := FormatPipeline(got)
		again, err := ParsePipeline(line)
		if err != nil {
			t.Fatalf("%q became %q: %v", in, line, err)
		}
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("%q became %q (-first +second):\n%s", in, line, diff)
		}
		short, err := Shortcut(tableName(got.Schema, got.Table), quoteAll(got.Columns), quoteIfSet(got.IntoColumn),
			formatIfSet(got))
		if err != nil {
			t.Fatalf("%q as flags: %v", in, err)
		}
		if diff := cmp.Diff(got, short); diff != "" {
			t.Fatalf("%q as flags (-line +flags):\n%s", in, diff)
		}
	})
}

func quoteAll(names []string) []string {
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, quoteIdent(name))
	}
	return quoted
}

func quoteIfSet(name string) string {
	if name == "" {
		return ""
	}
	return quoteIdent(name)
}

func formatIfSet(s pipeline.Spec) string {
	if s.IntoTable == "" {
		return ""
	}
	return tableName(s.IntoSchema, s.IntoTable)
}
