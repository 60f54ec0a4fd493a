package setup_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// hostile are names that break code that does not quote them correctly.
var hostile = []string{
	`"`, `""`, `'`, `''`, `\`, `\\`, `a"b`, `a'b`, `a\b`, `a;b`, `--`, `/*`, `*/`, `$1`, `$$`, `$x$`, `%s`, `%I`, `%`,
	`@name`, `:name`, `?`, `{}`, `()`, `[]`, `,`, `.`, `a.b`,
	`"; DROP TABLE public.sentinel; --`, `x$$; DROP TABLE public.sentinel; --`, `'; DROP TABLE public.sentinel; --`, `$1; DROP TABLE public.sentinel`, "a\nb",
	"a\tb", "\r", " ", " a ", "select", "table", "user", "NULL", "r", "k", "embedding2",
	"k1", "place", "row_key", "chunk", "Title", "title", "TITLE", "é", "ü", "日本語", "👩‍👩‍👧", "\u202e",
	"\ufeff", "ß", "ﬁ", "İ", "ǅ", "{SUBLINK", ":varattno 0 ", ":hasSubLinks true", "<>", "=", "0", "1a", "-1",
	strings.Repeat("x", 63), strings.Repeat("é", 31), strings.Repeat(`"`, 31), strings.Repeat(`\`, 63), "E'", "U&\"",
	"pg_catalog", "public", "oid", "xmin_", "tableoid_", "embedsidecar",
}

// anyName generates a name of up to 63 bytes that Postgres allows.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(hostile), rapid.Custom(func(t *rapid.T) string {
		name := strings.ReplaceAll(rapid.StringOfN(rapid.Rune(), 1, 30, 63).Draw(t, "name"), "\x00", "0")
		for len(name) > 63 || !utf8.ValidString(name) {
			name = name[:len(name)-1]
		}
		if name == "" {
			return "x"
		}
		return name
	}))
}

// distinct draws names that differ.
func distinct(n int) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(anyName(), n, n, func(s string) string { return s })
}

func q(names ...string) string { return pgx.Identifier(names).Sanitize() }

// Every user-defined name passes unchanged through set-up, texts, keys, check and removal.
func TestNames_AnyNameIsJustAName(t *testing.T) {
	t.Parallel()
	const tables, columns = 40, 22
	b := newBase(t, "CREATE TABLE public.sentinel (n int)")
	slot := b.SlotName()
	names := 0
	for i := range tables {
		top := distinct(4).Example(2 * i)
		cols := distinct(columns + 2).Example(2*i + 1)
		schema, table, into, name := top[0], top[1], top[2], top[3]
		if strings.HasPrefix(schema, "pg_") || schema == "embedsidecar" {
			schema = "s" + schema[1:]
		}
		names += len(top) + len(cols)
		schema = fmt.Sprintf("%.58s", schema) // leaves room for the number that keeps schemas apart
		for len(schema) > 58 || !utf8.ValidString(schema) {
			schema = schema[:len(schema)-1]
		}
		schema += fmt.Sprint(i)
		key, destination, sources := cols[0], cols[1], cols[2:]
		var definitions, selected []string
		for j, c := range sources {
			definitions = append(definitions, q(c)+" text")
			selected = append(selected, fmt.Sprintf("'%d'", j))
		}
		b.MustExec("CREATE SCHEMA " + q(schema))
		b.MustExec("CREATE TABLE " + q(schema, table) + " (" + q(key) + " text PRIMARY KEY, " + strings.Join(definitions,
			", ") + ")")
		b.MustExec("INSERT INTO "+q(schema, table)+" VALUES ($1, "+strings.Join(selected, ", ")+")", key)

		column := pipeline.Spec{
			Name: name, Schema: schema, Table: table, Columns: sources, IntoColumn: destination,
			Enabled: true,
		}
		written := column
		written.Name, written.Columns, written.IntoColumn, written.IntoTable = name+" too", nil, "", into
		written.Text, written.Filter = "concat_ws('|', "+strings.Join(quotedAll(sources), ", ")+")", q(sources[0])+" = '0'"
		o := b.options(slot, column, written)
		if i%2 == 1 && b.columnLists() {
			o.Specs[0].ColumnLists, o.Specs[1].ColumnLists = true, true
		}
		r, err := setup.Init(t.Context(), o)
		if err != nil {
			t.Fatalf("schema %q, table %q, columns %q, into %q, pipeline %q: %v", schema, table, cols, into, name, err)
		}
		for n, p := range r.Pipelines {
			var got, rowKey string
			var keep bool
			sql := "SELECT " + p.KeyExpression("r") + ", " + p.TextExpression() + ", " + p.FilterExpression() +
				" FROM " + p.Source() + " AS r WHERE " + p.MatchKey("r", []string{"$1::text"})
			if err := b.pool.QueryRow(t.Context(), sql, key).Scan(&rowKey, &got, &keep); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			separator := map[int]string{0: "\n\n", 1: "|"}[n]
			if rowKey != key || !keep || len(strings.Split(got, separator)) != columns {
				t.Errorf("table %q: key %q, text %q, keep %v", table, rowKey, got, keep)
			}
		}
		if wrong := find(b.check(o), check.Wrong, ""); len(wrong) != 0 {
			t.Fatalf("check: %+v", wrong)
		}
		for _, p := range r.Pipelines {
			if _, err := uninstall.Pipeline(t.Context(), uninstall.PipelineOptions{
				Pool: b.pool, Pipeline: p.Name,
				Embedding: true,
			}); err != nil {
				t.Fatalf("remove %q: %v", p.Name, err)
			}
		}
		b.MustExec("DROP SCHEMA " + q(schema) + " CASCADE")
	}
	if names < 1000 {
		t.Errorf("%d names were tried, want 1000", names)
	}
	if n := testenv.Value[int](b.Database, "SELECT count(*)::int FROM public.sentinel"); n != 0 {
		t.Errorf("the sentinel has %d rows", n)
	}
}

func quotedAll(names []string) []string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = q(n)
	}
	return quoted
}
