package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestTrust_WhatATriggerLeavesInASession: triggers of a source table run in our sessions, and could leave there what
// the next statement meets.
func TestTrust_WhatATriggerLeavesInASession(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(evidence)
	db.MustExec(`ALTER TABLE docs ADD embedding vector(8)`)
	db.MustExec(`CREATE FUNCTION litter() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_user <> session_user OR current_user NOT LIKE 't\_%' THEN RETURN NULL; END IF;
		-- in the sessions of the user
		INSERT INTO public.evidence VALUES (current_user);
		PERFORM set_config('lock_timeout', '1h', false), set_config('datestyle', 'SQL, DMY', false),
		set_config('litter.left', 'yes', false);
		PERFORM pg_try_advisory_lock(4711);
		IF NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'litter') THEN
		EXECUTE 'PREPARE litter AS SELECT 1'; END IF;
		CREATE TEMPORARY TABLE IF NOT EXISTS litter (id int);
		RETURN NULL; END $$`)
	db.MustExec(`CREATE TRIGGER litter AFTER UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION litter()`)
	r := newRig(t, db, column("docs", "body"))
	var pool *pgxpool.Pool
	r.options = func(o *sidecar.Options) { pool = o.Pool }
	r.edit("a ")
	_, stop := r.start()
	r.settle()
	r.edit("b ")
	r.settle()
	r.verify()
	stop()
	if who := testenv.Values[string](db, `SELECT DISTINCT who FROM evidence`); !slices.Equal(who, []string{r.role}) {
		t.Errorf("the trigger ran as %q, want %s", who, r.role)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // sessions are tidied when they are given back
		n := r.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		return n == 0, fmt.Sprintf("%d advisory locks are left", n)
	})
	var sessions []*pgxpool.Conn
	for range pool.Stat().TotalConns() {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, c)
	}
	for _, c := range sessions {
		var left string
		err := c.QueryRow(t.Context(),
			`SELECT concat_ws(', ', nullif(current_setting('lock_timeout'), '500ms'), nullif(current_setting('datestyle'),
				'ISO, MDY'),
			nullif(current_setting('litter.left', true), ''), to_regclass('pg_temp.litter')::text, (SELECT 'a statement'
			FROM pg_prepared_statements WHERE name = 'litter'),
			nullif(current_setting('search_path'), 'pg_catalog, pg_temp'))`).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		if left != "" {
			t.Errorf("a session still has %s", left)
		}
		c.Release()
	}
}

// evidence is a table that anybody may write to, and a trap that does.
const evidence = `CREATE TABLE evidence (who text); GRANT INSERT ON evidence TO public;
	CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.evidence VALUES (current_user);
	RETURN NEW; END $$;
	CREATE FUNCTION peek(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.evidence
	VALUES (current_user); RETURN $1; END $$`

// TestTrust_AnEmbeddingTableThatIsReplacedWithinAHeartbeat: nothing is written into another table than the one that
// was looked at.
func TestTrust_AnEmbeddingTableThatIsReplacedWithinAHeartbeat(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(evidence)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
	r.edit("a ")
	s, _ := r.start()
	r.settle()
	db.MustExecSuper(`BEGIN; ALTER TABLE docs_embedding RENAME TO away; CREATE TABLE docs_embedding (LIKE away INCLUDING ALL); GRANT ALL ON docs_embedding TO public;
		CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON docs_embedding FOR EACH STATEMENT
		EXECUTE FUNCTION trap(); COMMIT`)
	db.MustExecSuper(`ALTER TABLE docs_embedding OWNER TO ` + db.Role(""))
	db.MustExec(`UPDATE docs SET body = 'b ' || id; DELETE FROM docs WHERE id = 1`)
	reason(t, s, "docs", "docs_embedding")
	if who := testenv.Values[string](db, `SELECT who FROM evidence`); len(who) > 0 {
		t.Errorf("the trigger ran as %q", who)
	}
}

// TestTrust_ATriggerOnAnEmbeddingTable: it would run with the rights of whoever writes vectors, by the queue or not.
func TestTrust_ATriggerOnAnEmbeddingTable(t *testing.T) {
	t.Parallel()
	for name, noDirect := range map[string]bool{"direct": false, "queue": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(evidence)
			db.MustExecSuper(`ALTER DEFAULT PRIVILEGES FOR ROLE ` + testenv.Owner + ` GRANT ALL ON TABLES TO PUBLIC`)
			r := newRig(t, db, intoTable("docs", "body"))
			if testenv.Value[bool](db, `SELECT has_table_privilege('public', 'docs_embedding', 'TRIGGER')`) {
				t.Error("everybody may make triggers on the new embedding table")
			}
			r.options = func(o *sidecar.Options) { o.Heartbeat, o.NoDirect = time.Hour, noDirect }
			r.edit("a ")
			s, _ := r.start()
			r.settle()
			db.MustExec(`CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON docs_embedding FOR EACH STATEMENT
				EXECUTE FUNCTION trap()`)
			r.edit("b ")
			reason(t, s, "docs", "docs_embedding", "trigger")
			if who := testenv.Values[string](db, `SELECT who FROM evidence`); len(who) > 0 {
				t.Errorf("the trigger ran as %q", who)
			}
		})
	}
}

// TestTrust_ATriggerThatComesBesideASuperuser: one made between two looks at the table does not run, of
// whatever part of it and however it fires.
func TestTrust_ATriggerThatComesBesideASuperuser(t *testing.T) {
	t.Parallel()
	const parts = `CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id);
		CREATE TABLE part PARTITION OF docs FOR VALUES FROM (0) TO (1000)`
	for name, c := range map[string]struct{ made, on, each string }{
		"table":     {docs + `; CREATE TABLE child () INHERITS (docs)`, "docs", "ROW"},
		"statement": {parts, "docs", "STATEMENT"},
		"partition": {parts, "part", "ROW"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(c.made)
			db.MustExec(evidence)
			r := newRig(t, db, column("docs", "body"))
			r.edit("a ")
			db.MustExecSuper(`ALTER TABLE docs OWNER TO ` + testenv.Superuser)
			r.url, r.trusted = db.URL(testenv.Superuser), []string{testenv.Owner}
			r.known()
			r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
			s, _ := r.start()
			r.settle()
			other := db.Role("")
			trap := `CREATE TRIGGER trap BEFORE UPDATE OF embedding ON ` + c.on + ` FOR EACH ` + c.each + `
				EXECUTE FUNCTION trap()`
			db.MustExecSuper(`GRANT TRIGGER ON ` + c.on + ` TO ` + other)
			db.MustExecSuper(`SET ROLE ` + other + `; ` + trap + `; RESET ROLE`)
			db.MustExecSuper(`UPDATE docs SET body = 'b ' || id`)
			reason(t, s, "docs", "triggers")
			if who := testenv.Values[string](db, `SELECT who FROM evidence`); len(who) > 0 {
				t.Errorf("the trigger ran as %q", who)
			}
			db.MustExecSuper(`DROP TRIGGER trap ON ` + c.on + `; REVOKE TRIGGER ON ` + c.on + ` FROM ` + other + `; ` + trap)
			s.Reload()
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // with the trigger of a superuser
				return testenv.Value[bool](db, `SELECT EXISTS (SELECT FROM evidence)`),
					"nothing is written"
			})
		})
	}
}

// TestTrust_AViewInThePlaceOfATable: its functions would run with the rights of whoever reads it.
func TestTrust_AViewInThePlaceOfATable(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	if !testenv.Value[bool](db, `SELECT current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL`) {
		t.Logf("this server cannot be told to refuse views") // check says so
		return
	}
	db.MustExec(docs)
	db.MustExec(evidence)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
	r.edit("a ")
	r.start()
	r.settle()
	db.MustExec(`BEGIN; UPDATE docs SET body = 'b ' || id; ALTER TABLE docs RENAME TO away; CREATE VIEW docs AS SELECT id, peek(body) AS body FROM away; GRANT ALL ON docs TO public; COMMIT`)
	r.settle() // the table is followed under its new name
	r.verify()
	if who := testenv.Values[string](db, `SELECT who FROM evidence`); len(who) > 0 {
		t.Errorf("the view's function ran as %q", who)
	}
}

// TestTrust_AFunctionOfATextReadsNoView: for the same reason; a trigger of the table does.
func TestTrust_AFunctionOfATextReadsNoView(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	if !testenv.Value[bool](db, `SELECT current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL`) {
		t.Logf("this server cannot be told to refuse views") // check says so
		return
	}
	db.MustExec(docs)
	db.MustExec(`ALTER TABLE docs ADD embedding vector(8); CREATE TABLE seen (word text); CREATE VIEW words AS SELECT 'a word' AS word;
		GRANT SELECT ON words TO public; GRANT INSERT ON seen TO public;
		CREATE FUNCTION word(body text) RETURNS text LANGUAGE plpgsql AS
			$$ BEGIN RETURN (SELECT word FROM public.words); END $$;
		CREATE FUNCTION sees() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO public.seen SELECT word FROM public.words; RETURN NULL; END $$;
		CREATE TRIGGER sees AFTER UPDATE ON docs FOR EACH ROW WHEN (OLD.embedding IS DISTINCT FROM NEW.embedding) EXECUTE FUNCTION sees()`)
	calls := intoTable("docs")
	calls.Name, calls.Text = "calls", "public.word(body)"
	r := newRig(t, db, calls, column("docs", "body"))
	r.start()
	db.MustExec(`INSERT INTO docs (id, body) VALUES (1, 'a text')`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM seen`)
		return n == 1, fmt.Sprintf("the trigger has read the view %d times", n)
	})
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM embedsidecar.task WHERE state IN ('retrying', 'failed')`)
		return n == 1 && r.count(`SELECT count(*) FROM docs_embedding`) == 0, "the function has read the view"
	})
}

// TestTrust_SetRoleIsNoWall shows why write-backs are not run as the table's owner: a trigger can go back to the role
// of the session.
func TestTrust_SetRoleIsNoWall(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`CREATE TABLE evidence (who text)`)
	db.MustExec(`GRANT INSERT ON evidence TO public`)
	db.MustExec(`CREATE FUNCTION back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RESET ROLE; INSERT INTO public.evidence VALUES (current_user); RETURN NEW; END $$`)
	db.MustExec(`CREATE TRIGGER back BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION back()`)
	role := db.Role("")
	db.MustExecSuper(`GRANT ` + testenv.Owner + ` TO ` + role)
	conn, err := pgx.Connect(t.Context(), db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`SET LOCAL ROLE ` + testenv.Owner, `INSERT INTO public.docs VALUES (1, 'a')`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if who := testenv.Value[string](db, `SELECT who FROM evidence`); who != role {
		t.Errorf("the trigger ran as %s: SET LOCAL ROLE would keep it from the rights of %s after all", who, role)
	}
}

// TestTrust_CodeThatRunsAsARoleTakesItOver: a role belongs to all databases of a server, and may change its password.
// What a trigger does in one database reaches the others where that role works, too.
func TestTrust_CodeThatRunsAsARoleTakesItOver(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	role := db.Role("")
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY)`)
	db.MustExec(`GRANT INSERT ON docs TO ` + role)
	db.MustExec(`CREATE FUNCTION takes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		EXECUTE format('ALTER ROLE %I PASSWORD %L', current_user, 'taken'); RETURN NEW; END $$`)
	db.MustExec(`CREATE TRIGGER takes BEFORE INSERT ON docs FOR EACH ROW EXECUTE FUNCTION takes()`)
	connect := func(database, password string) error {
		config, err := pgx.ParseConfig(db.URL(role))
		if err != nil {
			t.Fatal(err)
		}
		config.Database = database
		if password != "" {
			config.Password = password
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			return err
		}
		_, err = conn.Exec(t.Context(), `INSERT INTO public.docs VALUES (1) ON CONFLICT DO NOTHING`)
		if database != db.Name {
			err = nil // the table is elsewhere
		}
		return errors.Join(err, conn.Close(t.Context()))
	}
	if err := connect(db.Name, ""); err != nil {
		t.Fatal(err)
	}
	if err := connect("postgres", "taken"); err != nil {
		t.Errorf("the owner of a table does not come into another database as the role that writes: %v", err)
	}
	if err := connect(db.Name, ""); err == nil {
		t.Error("the password is the one of before")
	}
}
