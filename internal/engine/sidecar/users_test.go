package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_RowsThatTheTableDoesNotLetUsWrite: triggers and constraints of the user's that refuse a write-back, each in
// its own way.
func TestP5_RowsThatTheTableDoesNotLetUsWrite(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 300) AS i`)
	r := newRig(t, db, column("docs", "body"))
	for _, sql := range []string{
		`CREATE FUNCTION before_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF old.id = 7 THEN RAISE EXCEPTION 'not this one: %', old.body; ELSIF old.id = 8 THEN RETURN NULL;
			ELSIF old.id = 9 THEN PERFORM 1 / 0; END IF;
			RETURN new; END $$`,
		`CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.id = 10 THEN RAISE EXCEPTION 'too late'; END IF; RETURN NULL; END $$`,
		`CREATE TRIGGER before_it BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION before_it()`,
		`CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON docs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()`,
		`ALTER TABLE docs ADD CONSTRAINT eleven CHECK (id <> 11) NOT VALID`,
	} {
		db.MustExec(sql)
	}
	r.options = quick
	r.start()
	r.settle()
	if got := testenv.Values[string](db, `SELECT row_key FROM embedsidecar.task ORDER BY row_key::int`); fmt.Sprint(
		got) != "[7 8 9 10 11]" {
		t.Errorf("dead letters %v, want 7 to 11", got)
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE error_message LIKE '%body%'`); n != 0 {
		t.Errorf("%d messages hold a row's text", n)
	}
	if n := r.count(`SELECT count(embedding) FROM docs`); n != 295 {
		t.Errorf("%d vectors, want 295", n)
	}
	for _, sql := range []string{
		`DROP TRIGGER before_it ON docs`, `DROP TRIGGER at_commit ON docs`,
		`ALTER TABLE docs DROP CONSTRAINT eleven`,
	} {
		db.MustExec(sql)
	}
	db.MustExec(`UPDATE docs SET body = body || '.' WHERE id BETWEEN 7 AND 11`)
	r.settle()
	r.verify()
}

// TestP4_TriggersPlanAsEver: what a user's trigger looks up beside a write-back, at once or with the commit, is planned
// as his other statements are, and not as ours about few rows.
func TestP4_TriggersPlanAsEver(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	for _, sql := range []string{
		`CREATE TABLE seen (op text, setting text)`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO public.seen SELECT tg_name, name || ' ' || setting FROM pg_catalog.pg_settings
			WHERE name LIKE 'enable\_%' AND setting <> boot_val OR name = 'plan_cache_mode' AND setting <> 'force_custom_plan';
			INSERT INTO public.seen VALUES (tg_name, '');
			RETURN new; END $$`,
		`CREATE TRIGGER at_once BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION note()`,
		`CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON docs DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION note()`,
	} {
		db.MustExec(sql)
	}
	r.start()
	db.MustExec(`INSERT INTO docs VALUES (1, 'a text'), (2, 'another')`)
	r.settle()
	got := testenv.Values[string](db, `SELECT DISTINCT op || ' ' || setting FROM seen ORDER BY 1`)
	if fmt.Sprint(got) != "[at_commit  at_once ]" {
		t.Errorf("what the triggers saw: %q", got)
	}
}

// TestP4_AColumnCanCostASerializableWriterAConflict pins what README, check and init say of a column destination: a
// writer whose snapshot is older than a write-back to its row must try again, one that reads anew need not.
func TestP4_AColumnCanCostASerializableWriterAConflict(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs VALUES (1, 'old'), (2, 'old')`)
	r := newRig(t, db, column("docs", "body"))
	r.start()
	r.settle()
	for isolation, want := range map[string]string{
		"READ COMMITTED": "", "REPEATABLE READ": "40001",
		"SERIALIZABLE": "40001",
	} {
		r.settle() // what was written before is no news to this one
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{`SET TRANSACTION ISOLATION LEVEL ` + isolation, `SELECT body FROM docs WHERE id = 1`} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		db.MustExec(`UPDATE docs SET body = 'other ' || $1 WHERE id = 2`, isolation)
		db.MustExec(`UPDATE docs SET embedding = NULL WHERE id = 2`)
		r.settle()
		// Row 2 was written by a user and by us after the snapshot, row 1 by nobody.
		if _, err := tx.Exec(t.Context(), `UPDATE docs SET body = 'mine ' || $1 WHERE id = 1`, isolation); err != nil {
			t.Errorf("%s: a row that nobody wrote: %v", isolation, err)
		}
		_, err = tx.Exec(t.Context(), `UPDATE docs SET body = 'mine ' || $1 WHERE id = 2`, isolation)
		code := ""
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
			code = pg.Code
		}
		if code != want {
			t.Errorf("%s: got %v, want SQLSTATE %q", isolation, err, want)
		}
		if err == nil {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	r.verify()
}

// TestP1_DefaultsOfTheRoleChangeNothing: whatever an administrator made defaults of the role or of the database,
// texts, keys and statements mean the same.
func TestP1_DefaultsOfTheRoleChangeNothing(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (at timestamptz, part float8, body text, price numeric, day date, raw bytea, span interval, PRIMARY KEY (at, part))`)
		db.MustExec(`INSERT INTO docs SELECT now() + i * interval '1 h', i / 3.0, 'body ' || i, i / 7.0, current_date + i,
			decode(md5(i::text), 'hex'), i * interval '1 h'
			FROM generate_series(1, 50) AS i`)
		r := newRig(t, db, spec("docs", "body", "at", "price", "day", "raw", "span"))
		for _, sql := range []string{
			`CREATE SCHEMA evil`,
			`CREATE FUNCTION evil."left"(text, int) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$`,
			`CREATE FUNCTION evil.concat_ws(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$`,
			`CREATE FUNCTION evil.same(float8, float8) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$`,
			`CREATE OPERATOR evil.= (LEFTARG = float8, RIGHTARG = float8, FUNCTION = evil.same)`,
			`CREATE TABLE evil.task (row_key text)`,
			`GRANT USAGE ON SCHEMA evil TO public`,
		} {
			db.MustExec(sql)
		}
		for name, value := range map[string]string{
			"search_path": "evil, pg_catalog", "datestyle": "SQL, DMY", "timezone": "Asia/Kathmandu",
			"intervalstyle": "sql_standard", "bytea_output": "escape",
			"extra_float_digits": "-3", "statement_timeout": "1ms", "lock_timeout": "1ms",
			"idle_in_transaction_session_timeout": "1ms",
			"default_transaction_isolation":       "serializable", "default_transaction_read_only": "on",
			"synchronous_commit":          "off",
			"client_encoding":             "LATIN1",
			"standard_conforming_strings": "off", "backslash_quote": "off", "enable_seqscan": "off", "enable_indexscan": "off",
			"row_security":          "on",
			"check_function_bodies": "off", "lc_monetary": "C", "xmlbinary": "hex", "plan_cache_mode": "force_generic_plan",
			"quote_all_identifiers": "on", "transform_null_equals": "on", "array_nulls": "off", "xmloption": "document",
		} {
			db.MustExecSuper(fmt.Sprintf(`ALTER ROLE %s SET %s = %s`, r.role, name, quoted(name, value)))
		}
		r.start()
		r.settle()
		r.verify()
		db.MustExec(`UPDATE docs SET body = body || '!' WHERE part < 5`)
		db.MustExec(`UPDATE docs SET at = at + interval '1 year' WHERE part > 12`)
		db.MustExec(`DELETE FROM docs WHERE part BETWEEN 5 AND 7`)
		r.settle()
		r.verify()
		if n, want := r.count(vectors(spec("docs"))), r.count(`SELECT count(*) FROM docs`); n != want {
			t.Errorf("%d vectors of %d rows", n, want)
		}
	})
}

// quoted is a value as ALTER ROLE ... SET takes it: a list of names stays a list.
func quoted(name, value string) string {
	if name == "search_path" {
		return value
	}
	return "'" + value + "'"
}

func TestGeneration_AnotherModelGetsNothing(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]embed.Description{
		"fingerprint": {Plugin: "counter", Model: "counter", Fingerprint: "another", Dims: dims, Deterministic: true},
		"width":       {Plugin: "counter", Model: "counter", Fingerprint: "counter-1", Dims: dims + 1, Deterministic: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			r := newRig(t, db, column("docs", "body"))
			r.edit("before ")
			_, stop := r.start()
			r.settle()
			stop()
			r.options = describing(r, other)
			db.MustExec(`UPDATE docs SET body = 'new ' || id`)
			sent := r.embedder.sent()
			s, stop := r.start()
			reason(t, s, "docs", "not the one its vectors were made with")
			r.has(43, `SELECT count(*) FROM embedsidecar.task`)
			if n := r.embedder.sent(); n != sent {
				t.Errorf("another model got %d texts", n-sent)
			}
			stop()
			r.options = nil
			r.start()
			r.settle()
			r.verify()
		})
	}
}

// described is the counter under another description.
type described struct {
	*counter
	is embed.Description
}

func (d *described) Describe(context.Context) (embed.Description, error) { return d.is, nil }

// describing makes sidecars of a rig whose embedder says that it is another.
func describing(r *rig, as embed.Description) func(*sidecar.Options) {
	return func(o *sidecar.Options) {
		o.Embedder = func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) {
			return &described{r.embedder, as}, nil
		}
	}
}

// states are what functions and triggers of users raise: by hand, by what they call, or by what they wait for.
var states = []string{
	"P0001", "22012", "23514", "42501", "42P01", "42883", "XX000", "54000", "0A000",
	"55000", // currval() of a sequence that was not used yet
	"55P03", // SELECT ... FOR UPDATE NOWAIT
	"55006", // a temporary table that is still in use
	"57014", // a statement_timeout of its own
	"08001", // dblink, or a foreign table
	"25006", // the same, to a standby
	"28P01", // the same, with a password that was changed
	"40001", "40P01",
	"53400", // temp_file_limit
	"58030", // a file that cannot be read
}

// Whatever is raised for some rows, by whatever means, the others get their vectors.
func TestP5_WhateverIsRaisedForOneRow(t *testing.T) {
	t.Parallel()
	raise := `CREATE FUNCTION raise(id bigint) RETURNS text LANGUAGE plpgsql AS $$ DECLARE states text[] := '{` +
		strings.Join(states, ",") + `}'; BEGIN
		IF id <= cardinality(states) THEN RAISE EXCEPTION 'not this one' USING ERRCODE = states[id]; END IF; RETURN ''; END $$`
	text := intoTable("docs", "body")
	text.Columns, text.Text = nil, `body || public.raise(id)`
	for name, c := range map[string]struct {
		spec    pipeline.Spec
		trigger bool
	}{
		"by a trigger": {column("docs", "body"), true},
		"by the text":  {text, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(raise)
			r := newRig(t, db, c.spec)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 100) AS i`)
			if c.trigger {
				db.MustExec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.raise(new.id); RETURN new; END $$`)
				db.MustExec(`CREATE TRIGGER refuse BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION refuse()`)
			}
			r.options = quick
			r.start()
			r.has(int64(100-len(states)), vectors(c.spec))
			r.has(0, `SELECT count(*) FROM embedsidecar.task WHERE row_key::int > $1`, len(states))
			r.status("docs", pipeline.Active)
		})
	}
}
