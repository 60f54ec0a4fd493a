package setup_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// TestTrust_ADomainOfSomebodyElseInAText: an expression must not use a type of an untrusted owner, in a cast or as an
// argument of a function: its constraints would run as the role that evaluates the expression. A literal of such a type
// is refused before it is parsed.
func TestTrust_ADomainOfSomebodyElseInAText(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, embedding vector(3))",
		"CREATE SCHEMA safe", "CREATE DOMAIN safe.word AS text",
		"CREATE SCHEMA lent", "CREATE DOMAIN lent.word AS text", "GRANT USAGE ON SCHEMA lent TO public")
	name, pool := b.tenant()
	b.MustExecSuper(`ALTER SCHEMA lent OWNER TO ` + name) // can drop objects in it and create its own
	b.as(pool, `GRANT USAGE ON SCHEMA lair TO public`,
		`CREATE FUNCTION lair.checks(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM lair.trap(); RETURN true; END'`,
		`CREATE DOMAIN lair.word AS text CHECK (lair.checks(VALUE))`, `CREATE TYPE lair.pair AS (a lair.word)`,
		`CREATE TYPE lair.span AS RANGE (subtype = lair.word)`, `CREATE TABLE lair."Row" (a lair.word)`,
		`CREATE TYPE lair.mood AS ENUM ('good')`,
		`CREATE SCHEMA r`, `CREATE DOMAIN r.body AS text`, `CREATE SCHEMA example`, `CREATE DOMAIN example.com AS text`)
	b.MustExec(`CREATE FUNCTION safe.takes(lair.word) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '' $$`)
	b.MustExec(`CREATE TYPE safe.of AS (a lair.word)`)
	for text, refused := range map[string]bool{
		`r.body || ' of example.com' -- of example.com`: false, `title::safe.word::text`: false,
		`title::lent.word::text`: true, `title::lair.word::text`: true,
		`('{a}'::lair.word[])::text`: true, `('(a)'::Lair . pair)::text`: true,
		`ROW(title)::lair."Row"::text`: true, `('(a)'::lair."Row")::text`: true, `('[a,b]'::lair.span)::text`: true,
		`title || ('good'::lair.mood)::text`: true, `(('(a)'::safe.of))::text`: true,
		`safe.takes(title)`: true, `('{a}'::/* a type */lair.word[])::text`: true,
	} {
		spec := docs()
		spec.Columns, spec.Text = nil, text
		_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
		b.sprung(name, err)
		if refused {
			wantError[*refusal.ConfigError](t, err, "the type", name, "--trust-owner")
		} else if err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTrust_AnAggregateOfSomebodyElse: the text of a join must not call an untrusted owner's aggregate, nor one that
// consists of such an owner's functions.
func TestTrust_AnAggregateOfSomebodyElse(t *testing.T) {
	t.Parallel()
	b := newBase(t, "CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, embedding vector(3))",
		"CREATE SCHEMA safe",
		"CREATE TABLE tags (id int PRIMARY KEY, doc_id bigint, name text, n int)", "ALTER TABLE tags REPLICA IDENTITY FULL",
		"CREATE AGGREGATE safe.all(text) (SFUNC = textcat, STYPE = text, INITCOND = '')")
	name, pool := b.tenant()
	b.as(pool, `GRANT USAGE ON SCHEMA lair TO public`,
		`CREATE FUNCTION lair.step(text, text) RETURNS text STRICT LANGUAGE plpgsql AS 'BEGIN PERFORM lair.trap(); END'`,
		`CREATE FUNCTION lair.ends(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM lair.trap(); END'`,
		`CREATE AGGREGATE lair.all(text) (SFUNC = textcat, STYPE = text, INITCOND = '')`)
	b.MustExec(`CREATE AGGREGATE safe.steps(text) (SFUNC = lair.step, STYPE = text, INITCOND = '')`)
	b.MustExec(`CREATE AGGREGATE safe.ends(text) (SFUNC = textcat, FINALFUNC = lair.ends, STYPE = text, INITCOND = '')`)
	b.MustExec(`CREATE AGGREGATE safe.joins(text) (SFUNC = textcat, COMBINEFUNC = lair.step, STYPE = text, INITCOND = '')`)
	b.MustExec(`CREATE AGGREGATE safe.moves(text) (SFUNC = textcat, STYPE = text, INITCOND = '', MSFUNC = textcat,
		MINVFUNC = lair.step, MSTYPE = text, MINITCOND = '', MFINALFUNC = lair.ends)`)
	try := func(text string) error {
		spec := docs()
		spec.Joins = pipeline.Joins{{
			Schema: "public", Table: "tags", As: "tags", On: []pipeline.On{{Column: "doc_id", Of: "id"}}, Text: text,
		}}
		_, _, err := resolve.Resolve(t.Context(), b.pool, spec, catalog.Vectors{Dims: 3})
		return err
	}
	for _, text := range []string{"safe.all(name)", "safe.all(name ORDER BY n)", "safe.all(DISTINCT name) FILTER (WHERE n > 1)"} {
		if err := try(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		"lair.all(name)", "safe.steps(name)", "safe.ends(name)", "safe.joins(name)", "safe.moves(name)",
	} {
		err := try(text)
		b.sprung(name, err)
		wantError[*refusal.ConfigError](t, err, "lair.", name, "--trust-owner")
	}
	// Nor one that another could replace.
	b.MustExec("ALTER TABLE tags ALTER name TYPE varchar(10)")
	if err := try("safe.all(name)"); err != nil {
		t.Error(err)
	}
	b.MustExecSuper("GRANT CREATE ON SCHEMA safe TO " + name)
	wantError[*refusal.ConfigError](t, try("safe.all(name)"), "title::text", "REVOKE CREATE ON SCHEMA safe")
	if err := try("safe.all(name::text ORDER BY n)"); err != nil {
		t.Error(err)
	}
}
