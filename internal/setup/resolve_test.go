package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestResolve_DefaultText(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs, "INSERT INTO docs VALUES (1, 'a', ''), (2, NULL, 'b'), (3, 'a', 'b')")
	spec := docs()
	spec.Columns = []string{"body", "title"}
	p, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
	if err != nil {
		t.Fatal(err)
	}
	want := pipeline.Pipeline{
		Spec: spec, OID: p.OID, Watched: []string{"title", "body"}, Dims: 3, Extension: `"public"`,
		Form:   pipeline.Form{Stored: pipeline.StoredVector, IntoNumber: p.IntoNumber},
		Status: pipeline.Active, OwnerMark: p.OwnerMark,
		Key: []pipeline.KeyColumn{{
			Name: "id", Type: "bigint", Equal: `OPERATOR("pg_catalog".=)`,
			Greater: `OPERATOR("pg_catalog".>)`,
		}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := testenv.Values[string](b.Database, "SELECT "+p.TextExpression()+" FROM docs AS r WHERE "+
		p.FilterExpression()+" ORDER BY id")
	if diff := cmp.Diff([]string{"a", "b", "b\n\na"}, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// For each key type, the text of a key must find its row again, and sort as its index does.
func TestResolve_KeysOfManyTypes(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		b := baseOn(t, testenv.DB(t, testenv.Empty(), testenv.Major(major)), `CREATE SCHEMA "Odd types"`,
			`CREATE TYPE "Odd types"."Mood" AS ENUM ('sad', 'it''s "ok"', 'happy')`,
			`CREATE DOMAIN "Odd types".word AS text COLLATE "C" CHECK (VALUE <> '')`,
			`CREATE TYPE "Odd types".pair AS (a int, b text)`)
		b.MustExecSuper(`CREATE EXTENSION citext SCHEMA "Odd types"`)
		for i, tt := range []struct{ columns, key, low, high string }{
			{"id bigint", "id", "1", "2"},
			{"id smallint", "id", "-1", "2"},
			{"id text", "id", "'a|b'", `'b\'`},
			{"id text COLLATE \"C\"", "id", "'B'", "'a'"},
			{"id varchar(10)", "id", "'a'", "'b'"},
			{"id char(5)", "id", "'a'", "'ab'"},
			{`id "char"`, "id", "'a'", "'b'"},
			{"id name", "id", "'a'", "'b'"},
			{"id bit(4)", "id", "B'0101'", "B'1000'"},
			{"id bit varying(9)", "id", "B'01'", "B'1'"},
			{"id uuid", "id", "'00000000-0000-0000-0000-000000000001'", "'f0000000-0000-0000-0000-000000000001'"},
			{"id boolean", "id", "false", "true"},
			{"id numeric(10,2)", "id", "1.10", "2"},
			{"id double precision", "id", "0.1", "1e30"},
			{"id date", "id", "'2024-02-01'", "'2024-03-04'"},
			{"id timestamptz", "id", "'2024-02-01 10:00+02'", "'2024-02-01 11:00:00.123456+02'"},
			{"id timestamp(0)", "id", "'2024-02-01 10:00'", "'2024-02-01 11:00'"},
			{"id time", "id", "'10:00'", "'11:00'"},
			{"id interval", "id", "'1 day'", "'1 mon -2 days'"},
			{"id bytea", "id", `'\x00'`, `'\xff'`},
			{"id inet", "id", "'10.0.0.1/8'", "'10.0.0.2/8'"},
			{"id int[]", "id", "'{1,2}'", "'{1,3}'"},
			{"id int4range", "id", "'[1,3)'", "'[2,3)'"},
			{`id "Odd types"."Mood"`, "id", "'it''s \"ok\"'", "'happy'"},
			{`id "Odd types"."Mood"[]`, "id", "'{sad}'", "'{happy}'"},
			{`id "Odd types".word`, "id", "'B'", "'a'"},
			{`id "Odd types".citext`, "id", "'a'", "'B'"},
			{`id "Odd types".pair`, "id", `'(1,"x,y")'`, "'(2,)'"},
			{"a int, b text", "b, a", "1, 'x'", "2, 'y|'"},
			{`a "Odd types".citext, b int[]`, "a, b", "'x', '{1}'", "'X', '{2}'"},
		} {
			name := fmt.Sprintf("k%d", i)
			public := "public." + name
			b.MustExec(fmt.Sprintf("CREATE TABLE %s (%s, body text, embedding vector(3), PRIMARY KEY (%s))", name, tt.columns,
				tt.key))
			b.MustExec(fmt.Sprintf("INSERT INTO %s VALUES (%s, 'low'), (%s, 'high')", name, tt.low, tt.high))
			p, _, err := resolve.Resolve(t.Context(), b.pool, pipeline.Spec{
				Name: name, Schema: "public", Table: name,
				Columns: []string{"body"}, IntoColumn: "embedding",
			}, catalog.Vectors{Dims: 3})
			if err != nil {
				t.Errorf("%s: %v", tt.columns, err)
				continue
			}
			rows, err := b.pool.Query(t.Context(), "SELECT "+p.KeyExpression("r")+", body FROM "+public+" AS r")
			if err != nil {
				t.Errorf("%s: %v", tt.columns, err)
				continue
			}
			keys := map[string]string{}
			var key, body string
			for rows.Next() {
				if err := rows.Scan(&key, &body); err != nil {
					t.Fatal(err)
				}
				keys[body] = key
			}
			if err := rows.Err(); err != nil {
				t.Errorf("%s: %v", tt.columns, err)
			}
			for body, key := range keys {
				values, err := pipeline.SplitKey(key, len(p.Key))
				if err != nil {
					t.Fatal(err)
				}
				texts, args := []string{}, []any{}
				for j, v := range values {
					texts, args = append(texts, fmt.Sprintf("$%d::text", j+1)), append(args, v)
				}
				var got string
				if err := b.pool.QueryRow(t.Context(), "SELECT body FROM "+public+" AS r WHERE "+p.MatchKey("r", texts),
					args...).Scan(&got); err != nil || got != body {
					t.Errorf("%s: row %s of key %q: got %q, %v", tt.columns, body, key, got, err)
				}
			}
			if len(p.Key) > 1 {
				continue
			}
			var larger string
			err = b.pool.QueryRow(t.Context(), "SELECT body FROM "+public+" AS r WHERE r.id "+p.Key[0].Greater+" "+
				p.Key[0].Value("$1::text"), keys["low"]).Scan(&larger)
			if err != nil || larger != "high" {
				t.Errorf("%s: after %q comes %q, %v", tt.columns, keys["low"], larger, err)
			}
		}
	})
}

func TestResolve_TablesThatCannotBeSources(t *testing.T) {
	t.Parallel()
	b := newBase(t, makeDocs,
		"CREATE VIEW v AS SELECT * FROM docs", "CREATE MATERIALIZED VIEW m AS SELECT * FROM docs",
		"CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, body text, embedding vector(3))",
		"CREATE TABLE keyless (body text, embedding vector(3))",
		"CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, body text, embedding vector(3))",
		"CREATE TABLE nothing (id int PRIMARY KEY, body text, embedding vector(3))",
		"ALTER TABLE nothing REPLICA IDENTITY NOTHING",
		"CREATE TABLE full_keyless (body text, embedding vector(3))", "ALTER TABLE full_keyless REPLICA IDENTITY FULL",
		"CREATE TABLE gone_index (id int NOT NULL, body text, embedding vector(3))",
		"CREATE UNIQUE INDEX gone ON gone_index (id)",
		"ALTER TABLE gone_index REPLICA IDENTITY USING INDEX gone", "DROP INDEX gone",
		"CREATE TABLE made (body text, id text GENERATED ALWAYS AS (lower(body)) STORED PRIMARY KEY, embedding vector(3))",
		"CREATE TABLE parts (id int PRIMARY KEY, body text, embedding vector(3)) PARTITION BY RANGE (id)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)", "ALTER TABLE parts_1 REPLICA IDENTITY NOTHING",
		"CREATE TABLE parts2 (id int PRIMARY KEY, body text, embedding vector(3)) PARTITION BY RANGE (id)",
		"CREATE UNLOGGED TABLE parts2_1 PARTITION OF parts2 FOR VALUES FROM (0) TO (10)",
	)
	for table, words := range map[string][]string{
		"v":            {"is a view"},
		"m":            {"is a materialized view"},
		"unlogged":     {"unlogged", "SET LOGGED"},
		"keyless":      {"no primary key", "ADD COLUMN id bigint"},
		"deferred":     {"deferrable"},
		"nothing":      {"REPLICA IDENTITY NOTHING", "REPLICA IDENTITY DEFAULT"},
		"full_keyless": {"no primary key"},
		"gone_index":   {"index is gone"},
		"made":         {"generated"},
		"parts":        {`partition "public"."parts_1"`, "REPLICA IDENTITY DEFAULT"},
		"parts2":       {`partition "public"."parts2_1" is unlogged`},
		"dcos":         {"no table", "did you mean public.docs?"},
	} {
		_, _, err := resolve.Resolve(t.Context(), b.pool, pipeline.Spec{
			Name: table, Schema: "public", Table: table,
			Columns: []string{"body"}, IntoColumn: "embedding",
		}, catalog.Vectors{Dims: 3})
		if err == nil {
			t.Errorf("%s: no error", table)
			continue
		}
		if table == "dcos" {
			wantError[*refusal.MissingError](t, err, words...)
			continue
		}
		wantError[*refusal.ConfigError](t, err, append(words, `pipeline "`+table+`"`)...)
	}
	_, _, err := resolve.Resolve(t.Context(), b.pool, pipeline.Spec{
		Name: "x", Schema: "pg_catalog", Table: "pg_class",
		Columns: []string{"relname"}, IntoColumn: "e",
	}, catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "table of the system")
}

func TestResolve_ReplicaIdentities(t *testing.T) {
	t.Parallel()
	b := newBase(t,
		"CREATE TABLE full_keyed (id int PRIMARY KEY, body text, embedding vector(3))",
		"ALTER TABLE full_keyed REPLICA IDENTITY FULL",
		"CREATE TABLE indexed (id int PRIMARY KEY, a text NOT NULL COLLATE \"C\", b int NOT NULL, c int, body text, embedding vector(3))",
		"CREATE UNIQUE INDEX by_ba ON indexed (b DESC, a) INCLUDE (c)",
		"ALTER TABLE indexed REPLICA IDENTITY USING INDEX by_ba",
		"CREATE TABLE parts (id int, day date, body text, embedding vector(3), PRIMARY KEY (day, id)) PARTITION BY RANGE (day)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01') PARTITION BY RANGE (id)",
		"CREATE TABLE parts_1_1 PARTITION OF parts_1 FOR VALUES FROM (0) TO (10)",
		"ALTER TABLE parts_1_1 REPLICA IDENTITY FULL",
		"CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
		"CREATE TABLE pattern (a text NOT NULL, body text, embedding vector(3))",
		"CREATE UNIQUE INDEX by_pattern ON pattern (a text_pattern_ops)",
		"ALTER TABLE pattern REPLICA IDENTITY USING INDEX by_pattern",
		"CREATE TABLE parent (id int PRIMARY KEY, body text, embedding vector(3))", "CREATE TABLE child () INHERITS (parent)",
	)
	for table, want := range map[string][]string{
		"full_keyed": {"id"}, "indexed": {"b", "a"}, "parts": {"day", "id"}, "pattern": {"a"}, "parts_1_1": {"day", "id"},
		"parent": {"id"},
	} {
		p, _, err := resolve.Resolve(t.Context(), b.pool, pipeline.Spec{
			Name: table, Schema: "public", Table: table,
			Columns: []string{"body"}, IntoColumn: "embedding",
		}, catalog.Vectors{Dims: 3})
		if err != nil {
			t.Errorf("%s: %v", table, err)
			continue
		}
		var got []string
		for _, k := range p.Key {
			got = append(got, k.Name)
			if !strings.HasSuffix(k.Greater, ".>)") {
				t.Errorf("%s: greater is %s", table, k.Greater)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: key %v, want %v", table, got, want)
		}
		if p.Partitioned != (table == "parts") {
			t.Errorf("%s: partitioned is %v", table, p.Partitioned)
		}
	}
}

// expressions are texts and filters for the table of TestResolve_Expressions.
var expressions = []struct {
	text, filter string
	watched      []string // nil: an error with these words
	words        []string
}{
	{text: "title", watched: []string{"title"}},
	{text: "r.title || docs_n(1)", words: []string{"docs_n"}},
	{text: "concat_ws(E'\\n', title, body, n) -- the end", watched: []string{"title", "body", "n"}},
	{text: "body || title /* why */", filter: "flag AND n > 3", watched: []string{"title", "body", "n", "flag"}},
	{text: "coalesce(title, id::text)", watched: []string{"title"}},
	{text: "'fixed'", watched: []string{}},
	{text: "made", watched: []string{"body", "n"}},
	{text: "made || title", filter: "made > ''", watched: []string{"title", "body", "n"}},
	{text: `"select ':varattno 0 {SUBLINK"`, watched: []string{"select ':varattno 0 {SUBLINK"}},
	{text: "array_to_string(tags, ', ')", watched: []string{"tags"}},
	{text: "public.shout(title)", watched: []string{"title"}},
	{text: "CASE WHEN flag THEN title END", watched: []string{"title", "flag"}},
	{text: "title::varchar(10)", watched: []string{"title"}},
	{text: "format('%s at %s', title, at)", watched: []string{"title", "at"}},
	{text: "title", filter: "NULL::boolean", watched: []string{"title"}},
	{text: "(title), (body)", words: []string{"of type record, want text"}},
	{text: "title) FROM pg_class AS r; DROP TABLE docs; --", words: []string{"not an expression"}},
	{text: "title; SELECT 1", words: []string{"not an expression"}},
	{text: "title) FROM docs AS r UNION ALL SELECT (body", words: []string{"not an expression"}},
	{text: "title) || (body", words: []string{"not an expression"}},
	{text: "title] || ARRAY[body", words: []string{"not an expression"}},
	{text: "title /* open", words: []string{"not an expression"}},
	{text: "'open", words: []string{"not an expression"}},
	{text: "", filter: " ", words: []string{"filter is blank"}},
	{text: "$1", words: []string{"parameter"}},
	{text: "$1::text", words: []string{"parameter"}},
	{text: "titel", words: []string{"titel", "title"}},
	{text: "title", filter: "title = published", words: []string{"single quotes", "write 'published'"}},
	{text: "shout(title)", words: []string{"shout", "search_path"}},
	{text: "n + 1", words: []string{"of type integer, want text", "::text"}},
	{text: "tags", words: []string{"of type text[], want text"}},
	{text: "title", filter: "n", words: []string{"filter is of type integer, want boolean"}},
	{text: "(SELECT title)", words: []string{"sub-select"}},
	{text: "(SELECT relname::text FROM pg_class LIMIT 1)", words: []string{"sub-select"}},
	{text: "CASE WHEN EXISTS (SELECT FROM pg_class) THEN title END", words: []string{"sub-select"}},
	{text: "max(title)", words: []string{"aggregate"}},
	{text: "string_agg(title, ',' ORDER BY id)", words: []string{"aggregate"}},
	{text: "first_value(title) OVER (ORDER BY id)", words: []string{"window function"}},
	{text: "unnest(tags)", words: []string{"returns a set"}},
	{text: "public.many(title)", words: []string{"returns a set"}},
	{text: "r::text", words: []string{"whole row"}},
	{text: "to_jsonb(r) ->> 'title'", words: []string{"whole row"}},
	{text: "r.ctid::text", words: []string{"system column"}},
	{text: "title || xmin", words: []string{"system column"}},
	{text: "embedding::text", words: []string{"destination", "reads the destination"}},
	{text: "title", filter: "embedding IS NULL", words: []string{"destination", "reads the destination"}},
	{text: "title\x00", words: []string{"NUL"}},
}

// TestP9_AKeyThatNoIndexOrdersIsWarnedOf: the index of a temporal key has no order, so each page of a comparison would
// read the whole table.
func TestP9_AKeyThatNoIndexOrdersIsWarnedOf(t *testing.T) {
	t.Parallel()
	b := baseOn(t, testenv.DB(t, testenv.Major(18), testenv.Empty()),
		`CREATE TABLE docs (room int4range, during daterange, title text, body text, embedding vector(3),
			PRIMARY KEY (room, during WITHOUT OVERLAPS))`)
	const words = "has no index in the order of its key"
	for _, warned := range []bool{true, false} {
		_, warnings, err := resolve.Resolve(t.Context(), b.super, docs(), catalog.Vectors{Dims: 3})
		if err != nil || strings.Contains(strings.Join(warnings, "; "), words) != warned {
			t.Errorf("%v, warnings %q", err, warnings)
		}
		b.MustExec(`CREATE INDEX ON docs (room, during)`)
	}
}

func TestResolve_Expressions(t *testing.T) {
	t.Parallel()
	b := newBase(t,
		`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, n int,
			"select ':varattno 0 {SUBLINK" text, flag boolean, tags text[], at timestamptz,
			made text GENERATED ALWAYS AS (lower(body) || n) STORED, embedding vector(3))`,
		"CREATE FUNCTION public.shout(text) RETURNS text LANGUAGE sql STABLE AS 'SELECT upper($1)'",
		"CREATE FUNCTION public.pure(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)'",
		"CREATE FUNCTION public.many(text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
		`CREATE TABLE docs_embedding (id bigint, chunk_no int DEFAULT 0, generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding vector(3) NOT NULL, PRIMARY KEY (id, chunk_no))`,
	)
	poor := b.Role("")
	b.MustExecSuper(`GRANT SELECT ON docs TO ` + poor + `; GRANT ALL ON docs_embedding TO ` + poor + `; GRANT ` + poor +
		` TO ` + testenv.Owner + `; DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
	noTemp := b.connect(poor)
	for _, tt := range expressions {
		spec := docs()
		spec.Text, spec.Filter, spec.Columns = tt.text, tt.filter, nil
		if tt.text == "" {
			spec.Columns = []string{"title"}
		}
		p, _, err := resolve.Resolve(t.Context(), b.super, spec, catalog.Vectors{Dims: 3})
		if tt.words != nil {
			if err == nil {
				t.Errorf("%q / %q: no error", tt.text, tt.filter)
				continue
			}
			wantError[*refusal.ConfigError](t, err, tt.words...)
		} else if err != nil {
			t.Errorf("%q / %q: %v", tt.text, tt.filter, err)
			continue
		} else if !slices.Equal(p.Watched, tt.watched) || p.WatchAll {
			t.Errorf("%q / %q: watched %q, want %q", tt.text, tt.filter, p.Watched, tt.watched)
		}
		// Without TEMPORARY, a plan detects most of the same mistakes, and the pipeline watches everything.
		spec.IntoColumn, spec.IntoTable = "", "docs_embedding"
		p, _, err = resolve.Resolve(t.Context(), noTemp, spec, catalog.Vectors{Dims: 3})
		unseen := slices.Contains(tt.words, "system column") || slices.Contains(tt.words, "reads the destination")
		switch {
		case err == nil && tt.words != nil && !unseen:
			t.Errorf("without TEMPORARY: %q / %q: no error", tt.text, tt.filter)
		case err != nil && tt.words == nil:
			t.Errorf("without TEMPORARY: %q / %q: %v", tt.text, tt.filter, err)
		case err == nil && !p.WatchAll:
			t.Errorf("without TEMPORARY: %q / %q: watched %q", tt.text, tt.filter, p.Watched)
		}
	}
	if n := testenv.Value[int](b.Database,
		"SELECT count(*)::int FROM pg_class WHERE relname LIKE 'embedsidecar%' OR relname = 'docs'"); n != 1 {
		t.Errorf("%d relations are left, want docs alone", n)
	}
}

func TestResolve_Destinations(t *testing.T) {
	t.Parallel()
	b := newBase(t,
		"CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, v4 vector(4), any_width vector, half halfvec(3), bits bit(3), words text, must vector(3) NOT NULL DEFAULT '[1,2,3]')",
		"CREATE TABLE clash (chunk_no int PRIMARY KEY, body text)",
		"CREATE TABLE shapeless (id bigint PRIMARY KEY)",
		"CREATE TABLE good (id bigint, chunk_no int NOT NULL DEFAULT 0, generation int NOT NULL, text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding vector(3) NOT NULL, note text, PRIMARY KEY (id, chunk_no))",
		"CREATE TABLE wrong_key (LIKE good INCLUDING DEFAULTS, PRIMARY KEY (chunk_no, id))",
		"CREATE TABLE wrong_type (LIKE good INCLUDING DEFAULTS, PRIMARY KEY (id, chunk_no))",
		"ALTER TABLE wrong_type ALTER id TYPE int",
		"CREATE TABLE extra (LIKE good INCLUDING DEFAULTS, needed int NOT NULL, PRIMARY KEY (id, chunk_no))",
		"CREATE VIEW seen AS SELECT * FROM good",
	)
	for _, tt := range []struct {
		name  string
		edit  func(s *pipeline.Spec)
		dims  int
		words []string
	}{
		{"missing", func(s *pipeline.Spec) { s.IntoColumn = "nope" }, 3, []string{"does not exist", "init"}},
		{"width", func(s *pipeline.Spec) { s.IntoColumn = "v4" }, 3, []string{"3 wide", "4"}},
		{"right width", func(s *pipeline.Spec) { s.IntoColumn = "v4" }, 4, nil},
		{"any width", func(s *pipeline.Spec) { s.IntoColumn = "any_width" }, 7, nil},
		{
			"unknown width", func(s *pipeline.Spec) { s.IntoColumn = "any_width" }, 0,
			[]string{"width of the vectors is unknown"},
		},
		{"width of the column", func(s *pipeline.Spec) { s.IntoColumn = "v4" }, 0, nil},
		{"half", func(s *pipeline.Spec) { s.IntoColumn = "half" }, 3, nil},
		{"half of another width", func(s *pipeline.Spec) { s.IntoColumn = "half" }, 4, []string{"4 wide", "3"}},
		{"half, but vector is configured", func(s *pipeline.Spec) {
			s.IntoColumn, s.IntoType = "half",
				pipeline.StoredVector
		}, 3, []string{"of type halfvec, not vector as configured"}},
		{"bits", func(s *pipeline.Spec) { s.IntoColumn, s.IntoType = "bits", pipeline.StoredBit }, 3, nil},
		{
			"too wide for an index", func(s *pipeline.Spec) { s.IntoColumn, s.Index = "any_width", "hnsw" }, 3000,
			[]string{"indexed up to 2000 dimensions", "have 3000", "type: halfvec"},
		},
		{
			"much too wide for an index", func(s *pipeline.Spec) { s.IntoColumn, s.Index = "any_width", "hnsw" }, 5000,
			[]string{"type: bit"},
		},
		{
			"odd type", func(s *pipeline.Spec) { s.IntoColumn, s.IntoType = "half", "circle" }, 3,
			[]string{"vector, halfvec, bit and sparsevec"},
		},
		{"text", func(s *pipeline.Spec) { s.IntoColumn = "words" }, 3, []string{"of type text"}},
		{"not null", func(s *pipeline.Spec) { s.IntoColumn = "must" }, 3, []string{"DROP NOT NULL"}},
		{"key", func(s *pipeline.Spec) { s.IntoColumn = "id" }, 3, []string{"column of the key"}},
		{"too wide", func(s *pipeline.Spec) { s.IntoColumn = "v4" }, 20000, []string{"16000"}},
		{"table missing", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "nope" }, 3, []string{"does not exist"}},
		{"table", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "good" }, 3, nil},
		{"table of another width", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "good" }, 4, []string{"4 wide"}},
		{
			"shapeless", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "shapeless" }, 3,
			[]string{`no column "chunk_no"`},
		},
		{"wrong key", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "wrong_key" }, 3, []string{"primary key is"}},
		{
			"wrong type", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "wrong_type" }, 3,
			[]string{`"id" is of type integer, want bigint`},
		},
		{"extra", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "extra" }, 3, []string{`"needed" is NOT NULL`}},
		{"view", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "seen" }, 3, []string{"a view"}},
		{"itself", func(s *pipeline.Spec) { s.IntoColumn, s.IntoTable = "", "docs" }, 3, []string{"is the source table"}},
		{"clash", func(s *pipeline.Spec) {
			s.Table, s.Columns, s.IntoColumn, s.IntoTable = "clash", []string{"body"}, "", "clash_embedding"
		}, 3, []string{`a column "chunk_no"`}},
		{"both", func(s *pipeline.Spec) { s.IntoTable = "good" }, 3, []string{"one destination"}},
		{
			"unknown column", func(s *pipeline.Spec) { s.Columns, s.IntoColumn = []string{"titel"}, "v4" }, 4,
			[]string{"titel", "did you mean title?"},
		},
		{
			"twice", func(s *pipeline.Spec) { s.Columns, s.IntoColumn = []string{"title", "title"}, "v4" }, 4,
			[]string{"twice"},
		},
		{"long name", func(s *pipeline.Spec) { s.IntoColumn = strings.Repeat("é", 32) }, 3, []string{"64 bytes"}},
	} {
		spec := docs()
		tt.edit(&spec)
		p, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: tt.dims})
		switch {
		case tt.words == nil && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.words == nil && p.Dims == 0:
			t.Errorf("%s: no width", tt.name)
		case tt.words != nil && err == nil:
			t.Errorf("%s: no error", tt.name)
		case tt.words != nil:
			wantError[*refusal.ConfigError](t, err, tt.words...)
		}
	}
	b.MustExecSuper("DROP EXTENSION vector CASCADE")
	_, _, err := resolve.Resolve(t.Context(), b.pool, docs(), catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "CREATE EXTENSION vector")
}

func TestResolve_Privileges(t *testing.T) {
	t.Parallel()
	b := newBase(t, `CREATE SCHEMA "S"`,
		`CREATE TABLE "S".docs (id bigint PRIMARY KEY, title text, body text, secret text, embedding vector(3))`)
	spec := docs()
	spec.Schema = "S"
	role := b.Role("")
	pool := b.connect(role)
	for range 3 { // each error says what to run; after two rounds (schema, table) it works
		_, _, err := resolve.Resolve(t.Context(), pool, spec, catalog.Vectors{Dims: 3})
		if err == nil {
			break
		}
		e := caught[*refusal.PermissionError](t, err, role)
		for _, sql := range e.SQL {
			b.MustExec(sql)
		}
	}
	if _, _, err := resolve.Resolve(t.Context(), pool, spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`SELECT secret FROM "S".docs`, `UPDATE "S".docs SET title = ''`} {
		if _, err := pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("the grants allow %s", sql)
		}
	}

	b.MustExec(`ALTER TABLE "S".docs ENABLE ROW LEVEL SECURITY`)
	_, _, err := resolve.Resolve(t.Context(), pool, spec, catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "row-level security", `ALTER ROLE "`+role+`" BYPASSRLS;`)
	if _, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Errorf("the owner is not subject to policies: %v", err)
	}
	b.MustExec(`ALTER TABLE "S".docs FORCE ROW LEVEL SECURITY`)
	_, _, err = resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "row-level security")
	b.MustExecSuper("ALTER ROLE " + role + " BYPASSRLS")
	if _, _, err := resolve.Resolve(t.Context(), pool, spec, catalog.Vectors{Dims: 3}); err != nil {
		t.Errorf("BYPASSRLS: %v", err)
	}
}
