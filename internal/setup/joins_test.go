package setup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// TestResolve_Joins: joins that are not supported are refused, with a hint.
func TestResolve_Joins(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, author_id int, code text COLLATE "C",
			parent_id bigint, made int GENERATED ALWAYS AS (length(title)) STORED, embedding vector(3));
		CREATE TABLE tags (id int PRIMARY KEY, doc_id int, name text, weight numeric);
		ALTER TABLE tags REPLICA IDENTITY FULL;
		CREATE TABLE notes (id int PRIMARY KEY, doc_id int NOT NULL, body text);
		CREATE TABLE silent (id int PRIMARY KEY, body text); ALTER TABLE silent REPLICA IDENTITY NOTHING;
		CREATE TABLE authors (id int PRIMARY KEY, name text, code text, place_id int);
		CREATE TABLE places (id int PRIMARY KEY, name text);
		CREATE VIEW names AS SELECT id, name FROM authors;
		CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
		CREATE UNLOGGED TABLE fast (id int PRIMARY KEY, body text);
		CREATE TYPE mood AS ENUM ('good'); CREATE TABLE moods (id mood PRIMARY KEY, body text);
		CREATE TABLE docs_embedding (id bigint, generation int NOT NULL, text_hash bytea NOT NULL,
			embedded_at timestamptz NOT NULL, chunk_no int NOT NULL DEFAULT 0, embedding vector(3) NOT NULL,
			PRIMARY KEY (id, chunk_no))`)
	join := func(table, column, of, text string) pipeline.Joins {
		return pipeline.Joins{{
			Schema: "public", Table: table, As: table, On: []pipeline.On{{Column: column, Of: of}}, Text: text,
		}}
	}
	tags := join("tags", "doc_id", "id", "string_agg(name, ' ' ORDER BY name)")
	twice := append(tags.Clone(), tags...)
	other := tags.Clone()
	other[0].As = "more"
	row := tags.Clone()
	row[0].As = "r"
	column := tags.Clone()
	column[0].As = "title"
	deep := join("authors", "id", "author_id", "concat(name, places)")
	deep[0].Joins = join("places", "id", "place_id", "name")
	unnamed := deep.Clone()
	unnamed[0].Text = "name"
	deeper := deep.Clone()
	deeper[0].Joins[0].Text, deeper[0].Joins[0].Joins = "concat(name, tags)", tags
	for name, c := range map[string]struct {
		joins pipeline.Joins
		text  string
		words string
	}{
		"children":                {tags, "", ""},
		"twice":                   {append(tags.Clone(), other...), "", ""},
		"parent":                  {join("authors", "id", "author_id", "name"), "title || authors", ""},
		"two levels":              {deep, "concat(title, authors)", ""},
		"itself":                  {join("docs", "id", "parent_id", "title"), "", "embedding table"},
		"same name":               {twice, "", "another join as"},
		"the row's name":          {row, "", "called r as"},
		"a column's name":         {column, "", `column as:`},
		"text without it":         {tags, "title", "does not name"},
		"join without it":         {unnamed, "", "does not name"},
		"three levels":            {deeper, "", "2 levels"},
		"no table":                {join("tag", "doc_id", "id", "name"), "", `no table mean`},
		"no column":               {join("tags", "docid", "id", "name"), "", `no column "docid"`},
		"no column of the row":    {join("tags", "doc_id", "ident", "name"), "", `no column "ident"`},
		"generated":               {join("tags", "doc_id", "made", "name"), "", "generated"},
		"types":                   {join("tags", "name", "id", "name"), "", "type text bigint"},
		"numbers":                 {join("tags", "weight", "author_id", "name"), "", "type numeric integer"},
		"collations":              {join("authors", "code", "code", "max(name)"), "", "collation"},
		"type of a user's":        {join("moods", "id", "title", "body"), "", "type mood"},
		"view":                    {join("names", "id", "author_id", "name"), "", "is a view"},
		"partitioned":             {join("parts", "id", "author_id", "body"), "", "partitioned as: trigger"},
		"unlogged":                {join("fast", "id", "author_id", "body"), "", "unlogged"},
		"old values":              {join("notes", "doc_id", "id", "max(body)"), "", "old value REPLICA IDENTITY FULL"},
		"silent":                  {join("silent", "id", "id", "body"), "", "old value REPLICA IDENTITY FULL"},
		"several rows":            {join("tags", "doc_id", "id", "name"), "", "several rows string_agg"},
		"no such column":          {join("tags", "doc_id", "id", "max(nam)"), "", "column"},
		"of the row":              {join("tags", "doc_id", "id", "max(title)"), "", "column"},
		"not of the group":        {join("tags", "doc_id", "id", "name || max(name)"), "", "GROUP BY"},
		"number":                  {join("tags", "doc_id", "id", "count(*)"), "", "want text"},
		"sub-select":              {join("tags", "doc_id", "id", "(SELECT 'a')"), "", "sub-select"},
		"two expressions":         {join("tags", "doc_id", "id", "max(name)), (max(name)"), "", "text of a join"},
		"statement":               {join("tags", "doc_id", "id", "max(name); DROP TABLE tags"), "", "text of a join"},
		"aggregate of the text":   {tags, "max(tags)", "aggregate"},
		"sub-select of the text":  {tags, "(SELECT tags)", "sub-select"},
		"joined name elsewhere":   {tags, "tags || authors", `column "authors"`},
		"another table's columns": {tags, "tags || name", `column "name"`},
	} {
		spec := docs()
		if spec.Joins = c.joins; c.text != "" {
			spec.Columns, spec.Text = nil, c.text
		}
		_, _, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3})
		switch {
		case c.words == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.words != "" && err == nil:
			t.Errorf("%s: no error", name)
		case c.words != "":
			wantError[*refusal.ConfigError](t, err, strings.Fields(c.words)...)
		}
	}
	joinedToItself(t, b, join, tags)
}

func joinedToItself(t *testing.T, b *base, join func(table, column, of, text string) pipeline.Joins,
	tags pipeline.Joins,
) {
	t.Helper()
	spec := docs()
	spec.IntoColumn, spec.IntoTable, spec.Joins = "", "docs_embedding", join("docs", "id", "parent_id", "title")
	if _, _, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Errorf("joined to itself, with an embedding table: %v", err)
	}
	spec.Joins = join("docs_embedding", "id", "id", "id::text")
	wantError[*refusal.ConfigError](t, func() error {
		_, _, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3})
		return err
	}(), "embedding table")
	spec.Joins = append(tags.Clone(), join("notes", "id", "author_id", "string_agg(body, '')")...)
	_, warnings, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3})
	said := strings.Join(warnings, "\n")
	for _, want := range []string{"order of rows", `"public"."tags" has no index`, `"public"."docs" has no index`} {
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%q is missing in %s (%v)", want, said, err)
		}
	}
}

// TestInit_JoinsNeedTheirGrants: a role that may read only the source gets the missing grants on the joined table.
func TestInit_JoinsNeedTheirGrants(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, author_id int, embedding vector(3));
		CREATE TABLE authors (id int PRIMARY KEY, name text, salary int)`)
	role := b.Role("")
	b.MustExecSuper(`GRANT SELECT (id, title, body, author_id, embedding), UPDATE (embedding) ON docs TO ` + role)
	spec := docs()
	spec.Joins = pipeline.Joins{{
		Schema: "public", Table: "authors", As: "author", On: []pipeline.On{{Column: "id", Of: "author_id"}}, Text: "name",
	}}
	_, _, err := resolve.Resolve(t.Context(), b.connect(role), spec, catalog.Vectors{Dims: 3})
	denied, ok := errors.AsType[*refusal.PermissionError](err)
	want := `GRANT SELECT ("id", "name") ON "public"."authors" TO "` + role + `";`
	if !ok || !slices.Contains(denied.SQL, want) {
		t.Fatalf("%v, want %s", err, want)
	}
	b.MustExecSuper(want)
	if _, _, err = resolve.Resolve(t.Context(), b.connect(role), spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Error(err)
	}
}
