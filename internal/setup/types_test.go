package setup_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// typed makes table docs with a key and a body of some types, and its embedding table, and resolves its pipeline.
func (b *base) typed(key, body string) error {
	b.t.Helper()
	b.MustExec(`DROP TABLE IF EXISTS docs_embedding, docs`)
	b.MustExec(`CREATE TABLE docs (id ` + key + ` PRIMARY KEY, title text, body ` + body + `)`)
	var made []string
	err := database.ReadOnly(b.t.Context(), b.pool, func(tx pgx.Tx) error {
		table, err := catalog.TableByName(b.t.Context(), tx, "public", "docs")
		if err != nil {
			return err
		}
		v, err := catalog.FindVector(b.t.Context(), tx, "")
		if err != nil {
			return err
		}
		err = table.CheckKey()
		made = catalog.EmbeddingTable(side(), table, v, pipeline.Form{Stored: pipeline.StoredVector}, 3)
		return err
	})
	if err != nil {
		return err
	}
	for _, sql := range made {
		b.MustExec(sql)
	}
	_, _, err = resolve.Resolve(b.t.Context(), b.pool, side(), catalog.Vectors{Dims: 3})
	return err
}

// TestTrust_TypesOfStrangers: owners of a table's types are checked where their code could run in our statements.
func TestTrust_TypesOfStrangers(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	name, pool := b.tenant()
	b.as(pool, `CREATE TYPE lair.mood AS ENUM ('good', 'bad')`, `CREATE DOMAIN lair.word AS text`,
		`CREATE TYPE lair.pair AS (a lair.word)`, `GRANT USAGE ON SCHEMA lair TO public`,
		`CREATE FUNCTION lair.cast(lair.mood) RETURNS text LANGUAGE sql AS 'SELECT lair.trap()::text'`)
	try := func(key, body string) error {
		t.Helper()
		return b.typed(key, body)
	}
	for _, types := range [][2]string{{"lair.mood", "lair.pair"}, {"lair.word", "lair.word"}, {"bigint", "lair.mood[]"}} {
		if err := try(types[0], types[1]); err != nil {
			t.Errorf("a key of type %s, and a text of %s: %v", types[0], types[1], err)
		}
		if testenv.Value[bool](b.Database, `SELECT atttypid = 'lair.word'::regtype FROM pg_attribute
			WHERE attrelid = 'docs_embedding'::regclass AND attname = 'id'`) {
			t.Error("the key of an embedding table is of a domain")
		}
	}
	for _, key := range []string{"lair.pair", "lair.mood[]"} {
		wantError[*refusal.ConfigError](t, try(key, "text"), "part of the key", name, "--trust-owner")
	}
	// Each statement looks up again what an expression calls with such a value.
	for expression, refused := range map[string]bool{
		`title || body`: true, `body::text`: true, `"body" || ''`: true, `U&"b\006fdy"::text`: true, `title || id`: false, `title || 'nobody'`: false,
	} {
		if err := try("bigint", "lair.mood"); err != nil {
			t.Fatal(err)
		}
		spec := side()
		spec.Columns, spec.Text = nil, expression
		_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
		if refused {
			wantError[*refusal.ConfigError](t, err, "body", "make a cast", "columns:")
		} else if err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		spec = side()
		spec.Filter = "(" + expression + ") <> ''"
		if _, _, err = resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); (err != nil) != refused {
			t.Errorf("filter %s: %v", expression, err)
		}
		spec = side()
		spec.PriorityBy = "CASE WHEN (" + expression + ") = '' THEN 'low' END"
		if _, _, err = resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); (err != nil) != refused {
			t.Errorf("priority %s: %v", expression, err)
		}
		spec = side()
		spec.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkSentences, Tokens: 64, Context: expression}
		if _, _, err = resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3}); refused &&
			(err == nil || !strings.Contains(err.Error(), "make a cast")) {
			t.Errorf("context %s: %v", expression, err)
		}
	}
	b.as(pool, `CREATE CAST (lair.mood AS text) WITH FUNCTION lair.cast(lair.mood) AS IMPLICIT`)
	wantError[*refusal.ConfigError](t, try("bigint", "lair.mood"), "casts", name, "--trust-owner")
	trusting, err := database.Connect(t.Context(), b.URL(testenv.Owner), database.Options{TrustedOwners: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trusting.Close)
	if _, _, err := resolve.Resolve(t.Context(), trusting, side(), catalog.Vectors{Dims: 3}); err != nil {
		t.Errorf("of an owner who is trusted: %v", err)
	}
}

// TestTrust_AnArrayOfADomainReadsLiteralsAsItsValues: constraints of a domain run while a literal beside an array of
// its values is parsed.
func TestTrust_AnArrayOfADomainReadsLiteralsAsItsValues(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	_, pool := b.tenant()
	b.as(pool, `GRANT USAGE ON SCHEMA lair TO public`,
		`CREATE DOMAIN lair.guarded AS text CHECK (lair.trap() IS NULL)`)
	for expression, refused := range map[string]bool{
		`(ARRAY[body] && '{draft}')::text`: true, `width_bucket(body, '{a,b}')::text`: true,
		`array_to_string(array_remove(ARRAY[title, body], ''), ' ')`: true, `(ARRAY["body"::text] && '{draft}')::text`: false,
		`array_to_string(array_remove(ARRAY[title, body::text], ''), ' ')`: false, `title || body || '{draft}'`: false,
		`coalesce(nullif(body, 'draft'), '{}')`: false,
	} {
		if err := b.typed("bigint", "lair.guarded"); err != nil {
			t.Fatal(err)
		}
		spec := side()
		spec.Columns, spec.Text = nil, expression
		_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
		if refused {
			wantError[*refusal.ConfigError](t, err, "body", "of a domain", "::text")
		} else if err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// TestTrust_TypesWithinAnEmbeddingTable: an existing embedding table must have no untrusted type wherever a value of it
// could be computed.
func TestTrust_TypesWithinAnEmbeddingTable(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	name, pool := b.tenant()
	b.as(pool, `CREATE TYPE lair.mood AS ENUM ('good', 'bad')`, `CREATE DOMAIN lair.word AS text`,
		`CREATE TYPE lair.pair AS (a lair.word)`, `GRANT USAGE ON SCHEMA lair TO public`)
	b.MustExec(`CREATE FUNCTION mine(text) RETURNS text IMMUTABLE LANGUAGE sql RETURN $1;
		CREATE TYPE words AS (a lair.word); CREATE TYPE span AS RANGE (SUBTYPE = lair.word);
		CREATE DOMAIN outer_word AS text CHECK (VALUE::lair.word <> 'x')`)
	b.as(pool, `CREATE FUNCTION lair.checks(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'`,
		`CREATE DOMAIN lair.checked AS text CHECK (lair.checks(VALUE))`,
		`CREATE DOMAIN lair.filled AS integer DEFAULT lair.trap()`)
	for _, domain := range []string{"checked", "filled"} { // their owner is trusted, but not that of the functions
		b.MustExecSuper(`ALTER DOMAIN lair.` + domain + ` OWNER TO ` + testenv.Owner)
	}
	for column, words := range map[string]string{
		"note lair.word": "domain lair.word", "note lair.word[]": "domain lair.word", "note lair.pair": "type lair.pair",
		"note words": "domain lair.word", "note words[]": "domain lair.word", "note span": "domain lair.word",
		"note outer_word": "domain lair.word", "note text DEFAULT 'x'::lair.word": "domain lair.word",
		"note text CHECK (mine(note)::lair.word <> 'x')":                          "domain lair.word",
		"note text GENERATED ALWAYS AS (embedding::text::lair.word::text) STORED": "domain lair.word",
		"note text, EXCLUDE ((note::lair.word) WITH =)":                           "domain lair.word",
		"note lair.checked": "function lair.checks", "note lair.filled": "function lair.trap",
		"note lair.checked[]":     "lair.checks",
		"note text, note2 bigint": "",
		"note lair.mood":          "", // an enum runs no code
	} {
		b.MustExec(`DROP TABLE IF EXISTS docs_embedding`)
		b.MustExec(`CREATE TABLE docs_embedding (id bigint, chunk_no integer NOT NULL DEFAULT 0, generation integer NOT NULL,
			text_hash bytea NOT NULL, embedded_at timestamptz NOT NULL, embedding vector(3) NOT NULL, ` + column +
			`, PRIMARY KEY (id, chunk_no))`)
		_, _, err := resolve.Resolve(t.Context(), b.pool, side(), catalog.Vectors{Dims: 3})
		if words != "" {
			wantError[*refusal.ConfigError](t, err, words, name)
		} else if err != nil {
			t.Errorf("%s: %v", column, err)
		}
	}
	b.MustExec(`CREATE STATISTICS worded ON (note::text::lair.word), id FROM docs_embedding`)
	_, _, err := resolve.Resolve(t.Context(), b.pool, side(), catalog.Vectors{Dims: 3})
	wantError[*refusal.ConfigError](t, err, "domain lair.word", name)
}

// TestTrust_OperatorsOfADomain: operators of an extension's type are named with their schema. An operator for the
// domain itself would take precedence, and compare the keys' values as our role.
func TestTrust_OperatorsOfADomain(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	name, _ := b.tenant()
	// as from PostgreSQL 15 on
	b.MustExecSuper(`REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT CREATE ON SCHEMA public TO ` + testenv.Owner)
	b.MustExec(`CREATE EXTENSION citext; CREATE DOMAIN slug AS citext;
		CREATE TABLE plain (id citext PRIMARY KEY, title text, body slug, embedding vector(3));
		CREATE TABLE docs (id slug PRIMARY KEY, title text, body text, embedding vector(3))`)
	resolved := func(table string) error {
		spec := docs()
		spec.Table = table
		_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
		return err
	}
	wantError[*refusal.ConfigError](t, resolved("docs"), `column "id"`, `REVOKE CREATE ON SCHEMA public FROM "`+name+`"`,
		"--trust-owner")
	if err := resolved("plain"); err != nil {
		t.Errorf("a text of a domain: %v", err)
	}
	b.MustExecSuper(`REVOKE CREATE ON SCHEMA public FROM ` + name + `; GRANT CREATE ON SCHEMA public TO PUBLIC`)
	wantError[*refusal.ConfigError](t, resolved("docs"), `column "id"`, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	b.MustExecSuper(`REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	if err := resolved("docs"); err != nil {
		t.Errorf("a key of a domain for which nobody makes operators: %v", err)
	}
}
