package sidecar_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_SeveralOwnersBehindOneRunRole: of two owners whose tables one role reads, one hangs code on the types of
// his table: it does not run as that role, so he sees nothing of the other's. With his casts there his pipeline is
// refused, and the other's works on.
func TestTrust_SeveralOwnersBehindOneRunRole(t *testing.T) {
	t.Parallel()
	for name, attacks := range map[string][]string{
		"a cast from text": {
			`CREATE FUNCTION lair.from_text(text) RETURNS lair.mood LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.steal(); RETURN 'good'; END $$`,
			`CREATE CAST (text AS lair.mood) WITH FUNCTION lair.from_text(text)`,
		},
		"a cast to text": {
			`CREATE FUNCTION lair.to_text(lair.mood) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.steal(); RETURN 'loot'; END $$`,
			`CREATE CAST (lair.mood AS text) WITH FUNCTION lair.to_text(lair.mood)`,
		},
		"a constraint of a domain": {
			`CREATE FUNCTION lair.checked(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.steal(); RETURN true; END $$`,
			`ALTER DOMAIN lair.word ADD CONSTRAINT late CHECK (lair.checked(VALUE))`,
		},
		"an operator": {
			`CREATE FUNCTION lair.same(lair.mood, lair.mood) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM lair.steal(); RETURN true; END $$`,
			`CREATE OPERATOR lair.= (LEFTARG = lair.mood, RIGHTARG = lair.mood, FUNCTION = lair.same)`,
			`CREATE OPERATOR public.= (LEFTARG = lair.mood, RIGHTARG = lair.mood, FUNCTION = lair.same)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
			db.MustExec(`CREATE SCHEMA lair`)
			db.MustExec(`CREATE TYPE lair.mood AS ENUM ('good', 'bad')`)
			db.MustExec(`CREATE DOMAIN lair.word AS text`)
			db.MustExec(`CREATE TABLE lair.notes (id lair.word, kind lair.mood, feels lair.mood, body text, PRIMARY KEY (id, kind))`)
			notes := pipeline.Spec{
				Name: "notes", Schema: "lair", Table: "notes", Columns: []string{"body", "feels"}, IntoSchema: "public",
				IntoTable: "notes_embedding",
			}
			r := newRig(t, db, intoTable("docs", "body"), notes)
			db.MustExec(`INSERT INTO docs VALUES (1, 'a secret')`)
			hostile := db.Role("")
			db.MustExecSuper(fmt.Sprintf(`ALTER TABLE lair.notes OWNER TO %[1]s; ALTER TYPE lair.mood OWNER TO %[1]s;
				ALTER DOMAIN lair.word OWNER TO %[1]s; GRANT ALL ON SCHEMA lair, public TO %[1]s; GRANT USAGE ON SCHEMA lair TO public`, hostile))
			his, err := pgxpool.New(t.Context(), db.URL(hostile))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(his.Close)
			run := func(sql string) {
				t.Helper()
				if _, err := his.Exec(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			// What he finds as somebody else, of the other's texts and of the installation's secret.
			run(`CREATE TABLE lair.loot (who text, what text)`)
			run(`GRANT INSERT, SELECT ON lair.loot TO public`)
			run(`CREATE FUNCTION lair.steal() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
				IF current_user = '` + hostile + `' THEN RETURN; END IF;
				INSERT INTO lair.loot SELECT current_user, body FROM public.docs;
				INSERT INTO lair.loot SELECT current_user, secret::text FROM embedsidecar.installation; END $$`)
			run(`INSERT INTO lair.notes VALUES ('a', 'good', 'good', 'one'), ('b', 'bad', 'bad', 'two')`)
			r.start()
			r.settle()
			r.has(2, `SELECT count(*) FROM notes_embedding`)
			for _, sql := range attacks {
				run(sql)
			}
			run(`UPDATE lair.notes SET body = body || ' more', feels = 'good'`)
			run(`INSERT INTO lair.notes VALUES ('c', 'bad', 'bad', 'three')`)
			run(`DELETE FROM lair.notes WHERE id = 'a'`)
			if strings.HasPrefix(name, "a cast") {
				r.status("notes", pipeline.Misconfigured)
			}
			db.MustExec(`INSERT INTO docs VALUES (2, 'another')`)
			r.has(2, `SELECT count(*) FROM docs_embedding`)
			if !strings.HasPrefix(name, "a cast") {
				r.settle()
				r.has(2, `SELECT count(*) FROM notes_embedding`)
			}
			if loot := testenv.Values[string](db, `SELECT who || ' ' || what FROM lair.loot`); len(loot) > 0 {
				t.Errorf("he has got %q", loot)
			}
		})
	}
}

// TestTrust_APlanThatNeverEndsStopsNobodyElse: the server evaluates what an owner declares immutable in an index if it
// plans a statement over the table. If that never ends, the pipeline is off, and the others start and go on.
func TestTrust_APlanThatNeverEndsStopsNobodyElse(t *testing.T) {
	t.Parallel()
	for how, caught := range map[string]string{"is cancelled": "", "goes on": "EXCEPTION WHEN query_canceled THEN NULL;"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
			db.MustExec(`CREATE TABLE notes (id bigint PRIMARY KEY, body text)`)
			r := newRig(t, db, intoTable("notes", "body"), intoTable("docs", "body"))
			owner := db.Role("")
			db.MustExecSuper(`GRANT CREATE ON SCHEMA public TO ` + owner + `; ALTER TABLE notes OWNER TO ` + owner)
			his, err := pgxpool.New(t.Context(), db.URL(owner))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(his.Close)
			for _, sql := range []string{
				`CREATE FUNCTION endless() RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
					WHILE current_user <> '` + owner + `' LOOP BEGIN PERFORM pg_sleep(86400); ` + caught + ` END; END LOOP; RETURN 1; END $$`,
				`CREATE INDEX ON notes ((endless()))`,
			} {
				if _, err := his.Exec(t.Context(), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
			r.start()
			r.has(1, `SELECT count(*) FROM docs_embedding`)
			if detail := r.status("notes", pipeline.Misconfigured); !strings.Contains(detail, "index") {
				t.Errorf("it says %q", detail)
			}
			db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
			r.has(2, `SELECT count(*) FROM docs_embedding`)
			// What the sidecar has given up ends: the server has only so many connections.
			var pids []int32
			err = db.Super().QueryRow(t.Context(), `SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&pids)
			if err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				left := testenv.Values[int32](db, `SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1)`, pids)
				return len(left) == 0, fmt.Sprintf("sessions %v plan on", left)
			})
		})
	}
}

// TestTrust_ACountThatNeverEndsHoldsUpNoStatus: nor does code that never ends when the rows of its owner's table are
// counted, and only then.
func TestTrust_ACountThatNeverEndsHoldsUpNoStatus(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text); CREATE TABLE notes (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'one'), (2, 'two')`)
	r := newRig(t, db, intoTable("notes", "body"), intoTable("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	db.MustExec(`CREATE FUNCTION endless() RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
		WHILE current_query() ~ '^(SELECT (ARRAY|count)|EXPLAIN)' LOOP
			BEGIN PERFORM pg_sleep(86400); EXCEPTION WHEN query_canceled THEN NULL; END;
		END LOOP; RETURN 1; END $$`)
	db.MustExec(`CREATE INDEX ON notes ((endless()))`)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	st, err := report.Read(ctx, connect(t, r.url, 4))
	if err != nil || len(st.Pipelines) != 2 || st.Pipelines[0].Rows != 2 || st.Pipelines[0].Known != 2 {
		t.Errorf("%+v, %v", st.Pipelines, err)
	}
	db.MustExecSuper(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event = 'PgSleep'`) // the pool would wait for them
}

// TestTrust_ASuperuserCountsNothingInASchemaOfOthers: the owner of a schema may drop a superuser's table and create his
// own, with code in an index, between the list of the small tables and their count.
func TestTrust_ASuperuserCountsNothingInASchemaOfOthers(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	newRig(t, db, intoTable("docs", "body"))
	other := db.Role("")
	db.MustExecSuper(fmt.Sprintf(`CREATE SCHEMA lair; ALTER TABLE docs OWNER TO %s; ALTER TABLE docs SET SCHEMA lair;
		ANALYZE lair.docs`, testenv.Superuser))
	counted := func() []string {
		list, err := database.Collect(t.Context(), db.Super(), "small_tables",
			func(row pgx.CollectableRow) (name string, err error) {
				err = row.Scan(new(string), &name)
				return name, err
			}, pgx.StrictNamedArgs{"most": 10})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if list := counted(); len(list) != 1 {
		t.Errorf("in a superuser's schema: %q", list)
	}
	for _, owner := range []string{
		"ALTER SCHEMA lair OWNER TO " + other,
		fmt.Sprintf("ALTER SCHEMA lair OWNER TO pg_database_owner; ALTER DATABASE %q OWNER TO %s", db.Name, other),
	} {
		db.MustExecSuper(owner)
		if list := counted(); len(list) > 0 {
			t.Errorf("%s: %q", owner, list)
		}
	}
}

// TestTrust_ANamesakeOfAFunctionThatATextCalls: whoever may make functions in the schema of one that a text calls makes
// another. It does not run as the role that works: a text that leaves room for one is refused, as
// TestTrust_ATextLeavesNoRoomForANamesake shows.
func TestTrust_ANamesakeOfAFunctionThatATextCalls(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title varchar(100), body text)`)
	db.MustExec(`CREATE FUNCTION clean(text, integer DEFAULT 1) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower($1) || current_user'`)
	hostile := db.Role("")
	db.MustExecSuper(`GRANT CREATE ON SCHEMA public TO ` + hostile)
	spec := intoTable("docs")
	spec.Text = `public.clean(title::text, 1)`
	r := newRig(t, db, spec)
	db.MustExec(`INSERT INTO docs VALUES (1, 'One', 'a secret')`)
	r.start()
	r.settle()
	his, err := pgxpool.New(t.Context(), db.URL(hostile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(his.Close)
	for _, sql := range []string{
		`CREATE TABLE loot (who text, what text)`, `GRANT INSERT, SELECT ON loot TO public`,
		`CREATE FUNCTION steal(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.loot SELECT current_user, title FROM public.docs; RETURN $1; END $$`,
		`CREATE FUNCTION clean(varchar) RETURNS text LANGUAGE sql AS 'SELECT public.steal($1)'`,
		`CREATE FUNCTION clean(varchar, integer) RETURNS text LANGUAGE sql AS 'SELECT public.steal($1)'`,
		`CREATE FUNCTION clean(text, bigint) RETURNS text LANGUAGE sql AS 'SELECT public.steal($1)'`,
	} {
		if _, err := his.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	db.MustExec(`INSERT INTO docs VALUES (2, 'Two', 'another')`)
	r.settle()
	r.has(2, `SELECT count(*) FROM docs_embedding`)
	if n := r.embedder.sent("one"+r.role, "two"+r.role); n != 2 {
		t.Errorf("%d texts are of a function that ran as %s: %v", n, r.role, r.embedder.counts())
	}
	if loot := testenv.Values[string](db, `SELECT who || ' ' || what FROM loot`); len(loot) > 0 {
		t.Errorf("he has got %q", loot)
	}
}

// TestTrust_AFunctionOfWhoIsTrustedNoMore: a function that a text calls, or a domain that it names, may belong to the
// owner of the table, or to a superuser. When he is that no more, he could replace it, so it is not called any more.
func TestTrust_AFunctionOfWhoIsTrustedNoMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, was, ceases string }{
		"owner of the table": {
			`words.clean(body)`, "ALTER TABLE docs OWNER TO OTHER", `ALTER TABLE docs OWNER TO ` + testenv.Owner,
		},
		"owner of the table, with a domain": {
			`body::words.clean`, "ALTER TABLE docs OWNER TO OTHER", `ALTER TABLE docs OWNER TO ` + testenv.Owner,
		},
		"superuser": {`words.clean(body)`, "ALTER ROLE OTHER SUPERUSER", "ALTER ROLE OTHER NOSUPERUSER"},
		"owner of the schema": {
			`words.clean(body)`, "ALTER ROLE OTHER SUPERUSER",
			"ALTER SCHEMA words OWNER TO OTHER; ALTER ROLE OTHER NOSUPERUSER",
		},
		"owner of the database": { // whose the schema public is from PostgreSQL 15 on
			`words.clean(body)`, "ALTER SCHEMA words OWNER TO pg_database_owner", "ALTER DATABASE THIS OWNER TO OTHER",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(`CREATE SCHEMA words; GRANT USAGE ON SCHEMA words TO public;
				CREATE FUNCTION words.clean(text) RETURNS text LANGUAGE sql IMMUTABLE RETURN lower($1);
				CREATE DOMAIN words.clean AS text`)
			other := db.Role("")
			as := strings.NewReplacer("OTHER", other, "THIS", db.Name).Replace
			db.MustExecSuper(as(`GRANT OTHER TO ` + testenv.Owner + `; ` + c.was))
			if name != "owner of the schema" && name != "owner of the database" {
				db.MustExecSuper(as(`ALTER FUNCTION words.clean OWNER TO OTHER; ALTER DOMAIN words.clean OWNER TO OTHER`))
			}
			spec := intoTable("docs")
			spec.Text = c.text
			r := newRig(t, db, spec)
			r.edit("a ")
			s, _ := r.start()
			r.settle()
			db.MustExecSuper(as(c.ceases))
			reason(t, s, "docs", "clean", other)
		})
	}
}

// TestTrust_WhatAnOwnerPutsIntoAnIndexRunsAsItsReaders: PostgreSQL runs functions that are said to be immutable when it
// plans a statement over a table, with the rights of whoever reads. No statement of ours can keep it from that, so
// docs/security.md says it: owners behind one role that reads must trust each other.
func TestTrust_WhatAnOwnerPutsIntoAnIndexRunsAsItsReaders(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	reader := db.Role("")
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`CREATE FUNCTION tells(integer) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF current_user = '` + reader + `' THEN RAISE EXCEPTION 'it runs as %', current_user; END IF; RETURN ''; END $$`)
	db.MustExec(`CREATE INDEX ON docs ((body || tells(1)))`)
	db.MustExec(`CREATE TABLE notes (id bigint, body text)`)
	db.MustExec(`CREATE STATISTICS of_notes ON (body || tells(1)), id FROM notes`)
	db.MustExec(`CREATE TABLE parts (id bigint, body text) PARTITION BY RANGE (id)`)
	db.MustExec(`CREATE TABLE part PARTITION OF parts (CHECK (body <> tells(1))) FOR VALUES FROM (0) TO (9)`)
	db.MustExec(`GRANT SELECT ON docs, notes, parts TO ` + reader)
	pool, err := pgxpool.New(t.Context(), db.URL(reader))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, table := range []string{"docs", "notes", "parts"} {
		_, err := pool.Exec(t.Context(), `SELECT body FROM `+table+` WHERE id = 1`)
		if err == nil || !strings.Contains(err.Error(), "it runs as") {
			t.Errorf("%s: %v: docs/security.md says something else", table, err)
		}
	}
}

// TestTrust_ASearchRunsNothingOfAnOwners: the owner of a table makes casts of his key's type. Whoever searches it by
// SQL does not run them, and a superuser does not search it at all.
func TestTrust_ASearchRunsNothingOfAnOwners(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExecSuper(`ALTER SCHEMA public OWNER TO pg_database_owner`) // as from PostgreSQL 15 on
	db.MustExec(`CREATE TYPE mood AS ENUM ('good', 'bad')`)
	db.MustExec(`CREATE TABLE docs (id mood PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES ('good', 'one'), ('bad', 'two')`)
	r := newRig(t, db, intoTable("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	searcher := db.SearcherRole()
	db.MustExec(`GRANT SELECT ON docs, docs_embedding TO ` + searcher)
	db.MustExec(`CREATE FUNCTION trap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the trap has run as %', current_user; END $$`)
	for _, to := range []string{"json", "jsonb", "text"} {
		db.MustExec(`CREATE FUNCTION to_` + to + `(mood) RETURNS ` + to + ` LANGUAGE plpgsql AS $$ BEGIN PERFORM trap(); RETURN 'null'; END $$`)
		db.MustExec(`CREATE CAST (mood AS ` + to + `) WITH FUNCTION to_` + to + `(mood)`)
	}
	nearest := func(user string, before ...string) (key, columns string, err error) {
		conn, err := pgx.Connect(t.Context(), db.URL(user))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		for _, sql := range before {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		err = conn.QueryRow(t.Context(), `SELECT row_key, key::text FROM embedsidecar.neighbours('docs', '[1,2,3,4,5,6,7,8]', 1)`).Scan(&key, &columns)
		return key, columns, err
	}
	if key, columns, err := nearest(searcher); err != nil || columns != `{"id": "`+key+`"}` {
		t.Errorf("found %q %s, %v", key, columns, err)
	}
	his, err := pgxpool.New(t.Context(), db.URL(searcher))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(his.Close)
	hits, err := search.Find(t.Context(), his, &r.pipelines[0],
		search.Request{Vector: []float32{1, 2, 3, 4, 5, 6, 7, 8}, Rows: 2})
	if err != nil || len(hits) != 2 || hits[0].Text == "" {
		t.Errorf("by HTTP: %+v, %v", hits, err)
	}
	for _, before := range [][]string{nil, {`SET ROLE ` + searcher}} {
		_, _, err := nearest(testenv.Superuser, before...)
		if !database.Denied(err) || !strings.Contains(err.Error(), `tables of "`+testenv.Owner+`"`) {
			t.Errorf("a superuser searches: %v", err)
		}
	}
	db.MustExecSuper(`DROP CAST (mood AS json); DROP CAST (mood AS jsonb); DROP CAST (mood AS text)`)
	db.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser + `; ALTER TABLE docs_embedding OWNER TO ` + testenv.Superuser)
	if _, _, err := nearest(testenv.Superuser); !database.Denied(err) {
		t.Errorf("a superuser searches a schema that another may rename: %v", err)
	}
	db.MustExecSuper(fmt.Sprintf(`ALTER DATABASE %q OWNER TO %s`, db.Name, testenv.Superuser))
	if key, _, err := nearest(testenv.Superuser); err != nil {
		t.Errorf("a superuser in tables of his own: %q, %v", key, err)
	}
	db.MustExecSuper(`CREATE FUNCTION same(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';
		ALTER FUNCTION same(text) OWNER TO ` + testenv.Owner)
	db.MustExecSuper(`CREATE INDEX hung ON docs (same(body))`)
	if _, _, err := nearest(testenv.Superuser); !database.Denied(err) ||
		!strings.Contains(err.Error(), "with its functions:") {
		t.Errorf("a superuser searches a table with a function of another in an index: %v", err)
	}
	// Nor do texts that are reranked, or the tables that they join, run another's code.
	db.MustExecSuper(`DROP INDEX hung; CREATE POLICY hung ON docs USING (same(body) <> '')`)
	if _, _, err := nearest(testenv.Superuser); !database.Denied(err) {
		t.Errorf("a superuser searches a table with a function of another in a policy: %v", err)
	}
	db.MustExecSuper(`DROP POLICY hung ON docs; CREATE TABLE joined (id int); ALTER TABLE joined OWNER TO ` + testenv.Owner)
	for _, has := range []string{
		`functions = '{public.same}'`,
		`functions = '{}', joins = jsonb_build_array(jsonb_build_object('oid', 'joined'::regclass::oid::text))`,
	} {
		db.MustExecSuper(`UPDATE embedsidecar.pipeline SET ` + has)
		if _, _, err := nearest(testenv.Superuser); !database.Denied(err) {
			t.Errorf("a superuser searches a pipeline whose %s: %v", has, err)
		}
	}
}

// TestTrust_ASearchReadsNoTableOfAStranger: one to which a stranger gives the name that the embedding table had is not
// searched, and casts of the types in it do not run.
func TestTrust_ASearchReadsNoTableOfAStranger(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs VALUES (1, 'one'), (2, 'two')`)
	r := newRig(t, db, intoTable("docs", "body"))
	_, stop := r.start()
	r.settle()
	stop()
	searcher, stranger := db.SearcherRole(), db.Role("")
	db.MustExec(`GRANT SELECT ON docs, docs_embedding TO ` + searcher)
	db.MustExec(`ALTER TABLE docs_embedding RENAME TO moved`)
	db.MustExecSuper(fmt.Sprintf(`GRANT CREATE, USAGE ON SCHEMA public TO %[1]s; SET SESSION AUTHORIZATION %[1]s;
		CREATE TYPE trap AS ENUM ('1');
		CREATE FUNCTION springs(trap) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'the trap has run as %%', current_user; END $$;
		CREATE CAST (trap AS bigint) WITH FUNCTION springs(trap) AS IMPLICIT;
		CREATE TABLE docs_embedding (id trap, embedding vector(8));
		INSERT INTO docs_embedding VALUES ('1', '[1,2,3,4,5,6,7,8]');
		GRANT SELECT ON docs_embedding TO %[2]s; RESET SESSION AUTHORIZATION`, stranger, searcher))
	conn, err := pgx.Connect(t.Context(), db.URL(searcher))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	rows, _ := conn.Query(t.Context(), `SELECT row_key FROM embedsidecar.neighbours('docs', '[1,2,3,4,5,6,7,8]', 5)`)
	if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) != 2 {
		t.Errorf("found %q, %v", found, err)
	}
	if is := testenv.Value[string](db, `SELECT d.quoted FROM embedsidecar.pipeline AS p,
		embedsidecar.destination_of(p.pipeline_id) AS d`); is != "public.moved" {
		t.Errorf("the vectors are in %s", is)
	}
}

// TestTrust_NothingInACallersPathStandsForOurs: procedures that commit have no search_path of their own, and views call
// functions by that of their reader. Operators and functions that somebody makes in a schema of the caller's path are
// called in the place of none of PostgreSQL's.
func TestTrust_NothingInACallersPathStandsForOurs(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.settle()
	db.MustExec(`CREATE SCHEMA lair`)
	db.MustExec(`DO $do$ DECLARE f record; o record; l text; r text; BEGIN
		FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args,
				pg_get_function_result(p.oid) AS result FROM pg_proc AS p
			WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname IN ('clock_timestamp',
				'pg_sleep', 'pg_notify', 'pg_current_wal_insert_lsn', 'pg_is_in_recovery', 'set_config', 'current_setting')
			UNION ALL VALUES ('cardinality', 'text[]', 'integer'),
				('concat_ws', 'text, text, text, text, text, text', 'text') LOOP
			EXECUTE format('CREATE FUNCTION lair.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN
				RAISE EXCEPTION ''the trap has run as %%'', current_user; END $$', f.proname, f.args, f.result);
		END LOOP;
		CREATE DOMAIN lair.timestamptz AS pg_catalog.timestamptz CHECK (lair.clock_timestamp() IS NULL);
		CREATE DOMAIN lair.pg_lsn AS pg_catalog.pg_lsn CHECK (lair.clock_timestamp() IS NULL);
		CREATE DOMAIN lair.text AS pg_catalog.text CHECK (lair.clock_timestamp() IS NULL);
		CREATE TYPE lair.record AS (decoded pg_catalog.bool, done pg_catalog.bool, resting lair.text, left_over lair.text);
		FOREACH l IN ARRAY '{integer,bigint,double precision,numeric,interval,timestamp with time zone}'::text[] LOOP
			FOREACH r IN ARRAY '{integer,bigint,double precision,numeric,interval,timestamp with time zone}'::text[] LOOP
				EXECUTE format('CREATE FUNCTION lair.trap(%s, %s) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
					RAISE EXCEPTION ''the trap has run as %%'', current_user; END $$', l, r);
				FOR o IN SELECT unnest('{*,+,-,<,<=,>,>=,=,||}'::text[]) AS name LOOP
					EXECUTE format('CREATE OPERATOR lair.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = lair.trap)', o.name, l, r);
				END LOOP;
			END LOOP;
		END LOOP; END $do$`)
	views := testenv.Value[string](db, `SELECT string_agg(format('TABLE %s', c.oid::regclass), '; ') FROM pg_class AS c
		WHERE c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind = 'v'`)
	for _, path := range []string{"lair, pg_catalog", "public, lair"} {
		conn, err := pgx.Connect(t.Context(), db.URL(testenv.Owner))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		for _, sql := range []string{
			`SET search_path = ` + path,
			`INSERT INTO public.docs SELECT i, 'a text' FROM generate_series(1, 500) AS i ON CONFLICT (id) DO UPDATE SET body = docs.body || 'x'`,
			`CALL embedsidecar.wait_until(timeout => '5 min')`, `CALL embedsidecar.drain(timeout => '5 min')`,
			`CALL embedsidecar.ask('docs', 'a question ` + path + `', '1 min', 3)`,
			views, `BEGIN`, `CALL embedsidecar.wait_until()`,
		} {
			_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
			if err != nil && !strings.Contains(err.Error(), "invalid transaction termination") &&
				!strings.Contains(err.Error(), "no reranker is configured") {
				t.Errorf("%s: %s: %v", path, sql, err)
			}
		}
		var now string
		if err := conn.QueryRow(t.Context(), `SHOW search_path`).Scan(&now); err == nil && now != path {
			t.Errorf("after the call the path is %s, want %s", now, path)
		}
	}
}
