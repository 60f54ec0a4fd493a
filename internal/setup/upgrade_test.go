package setup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// An upgrade keeps pending, retried and failed tasks, the ledger, grants, and a user's view of our tables.
func TestUpgrade_KeepsRowsAndRights(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.RunRole()
		reader, operator := db.SQLRoles()
		few := db.Role("") // has a single grant of each group, and so is a member of none
		db.MustExec(`GRANT EXECUTE ON FUNCTION embedsidecar.pause, embedsidecar.search TO ` + few + `;
			GRANT SELECT ON embedsidecar.dead_letters, embedsidecar.status TO ` + few)
		db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, committed_at)
			SELECT 1, s::text, s, 1, '3', '0/10', '0/20', now()
			FROM unnest(enum_range(NULL::embedsidecar.task_state)) AS s`)
		db.MustExec(`CREATE VIEW public.mine AS SELECT pipeline FROM embedsidecar.status`)
		rights := func() []string {
			return testenv.Values[string](db, `SELECT concat_ws(' ', a.grantee::regrole, a.privilege_type, o.name)
				FROM (SELECT c.relacl, c.relname::text FROM pg_class AS c WHERE c.relnamespace = 'embedsidecar'::regnamespace
				UNION ALL SELECT p.proacl, p.oid::regprocedure::text FROM pg_proc AS p
				WHERE p.pronamespace = 'embedsidecar'::regnamespace) AS o (acl, name), LATERAL aclexplode(o.acl) AS a
				WHERE a.grantee IN ($1::regrole, $2::regrole, $3::regrole) ORDER BY 1`, reader, operator, few)
		}
		before := rights()
		db.TakeBack()
		// Simulates an older version that lacks them.
		db.MustExec(`DROP VIEW embedsidecar.lanes; DROP FUNCTION embedsidecar.prioritise`)
		if err := testenv.Migrate(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, rights()); diff != "" || len(before) == 0 {
			t.Errorf("rights (-before +after):\n%s", diff)
		}
		if n := testenv.Value[int](db, `SELECT count(*) FROM embedsidecar.task`); n != 4 {
			t.Errorf("%d tasks, want 4", n)
		}
		db.MustExec(`SELECT FROM public.mine`)
		if n := testenv.Value[int](db, `SELECT version FROM embedsidecar.schema_version`); n != sqlfiles.Version {
			t.Errorf("version %d, want %d", n, sqlfiles.Version)
		}
	})
}

// If a publication has all tables, as replication tools make them, the server refuses UPDATEs and DELETEs in tables
// without a replica identity. Our tables have one, both new and upgraded.
func TestUpgrade_BesideAPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major), testenv.Empty())
		db.MustExecSuper(`CREATE PUBLICATION everything FOR ALL TABLES`)
		if err := testenv.Migrate(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		work := func() {
			db.MustExec(`INSERT INTO embedsidecar.history (bucket, pipeline_id, row_key, outcome, attempt, committed_at, lsn)
				SELECT 0, 1, i::text, 'done', 1, now(), '0/0' FROM generate_series(1, 20) AS i`)
			db.MustExec(`SELECT embedsidecar.prune_history('1 day', 10, 1000000000)`)
			db.MustExec(`SELECT embedsidecar.clear_history()`)
			for _, table := range testenv.Values[string](db, `SELECT oid::regclass::text FROM pg_class
				WHERE relnamespace = 'embedsidecar'::regnamespace AND relkind = 'r' AND relname !~ '^(init|index)_lock$'`) {
				db.MustExec(`DELETE FROM ` + table + ` WHERE false`)
			}
		}
		work()
		db.MustExecSuper(`DROP PUBLICATION everything`)
		db.TakeBack()
		for _, table := range testenv.Values[string](db, `SELECT oid::regclass::text FROM pg_class
			WHERE relnamespace = 'embedsidecar'::regnamespace AND relreplident = 'f'`) {
			db.MustExec(`ALTER TABLE ` + table + ` REPLICA IDENTITY DEFAULT`)
		}
		db.MustExecSuper(`CREATE PUBLICATION everything FOR ALL TABLES`)
		if err := testenv.Migrate(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		work()
	})
}

// TestP10_AnUpgradeNamesTheEventTriggerThatHidesRows: an event trigger that enables row-level security in new tables
// makes the upgrade fail.
func TestP10_AnUpgradeNamesTheEventTriggerThatHidesRows(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs)
	o := b.options(b.SlotName(), side())
	b.init(o)
	b.TakeBack()
	b.MustExecSuper(`CREATE FUNCTION public.strict() RETURNS event_trigger LANGUAGE plpgsql AS $$DECLARE o record; BEGIN
		FOR o IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE' LOOP
			EXECUTE 'ALTER TABLE ' || o.object_identity || ' ENABLE ROW LEVEL SECURITY'; END LOOP; END$$;
		CREATE EVENT TRIGGER "all tables" ON ddl_command_end EXECUTE FUNCTION public.strict()`)
	_, err := setup.Init(t.Context(), o)
	said := fmt.Sprint(err, problem.Hints(err))
	for _, word := range []string{"row-level security is on in the new table", `ALTER EVENT TRIGGER "all tables" DISABLE;`} {
		if !strings.Contains(said, word) {
			t.Errorf("the error lacks %q: %s", word, said)
		}
	}
	b.MustExecSuper(`DROP EVENT TRIGGER "all tables"`)
	b.init(o)
}

// A schema from before the first release is left unchanged and reported.
func TestUpgrade_RefusesWhatIsBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`UPDATE embedsidecar.schema_version SET version = $1`, sqlfiles.FirstVersion-1)
	if err := testenv.Migrate(t.Context(), db.Pool); !errors.Is(err, sqlfiles.ErrBeforeFirst) {
		t.Errorf("upgrade: %v, want ErrBeforeFirst", err)
	}
	err := catalog.CheckVersion(t.Context(), db.Pool)
	if got := problem.Code(err); got != code.NotSetUp {
		t.Errorf("a program that starts says %v (%v)", got, err)
	}
}

// Init takes over a database that the previous version set up: its tables are upgraded before anything is read from
// them, and no row is processed again.
func TestInit_TakesOverWhatTheVersionBeforeHasSetUp(t *testing.T) {
	t.Parallel()
	b := newBase(t, plainDocs, "INSERT INTO docs VALUES (1, 'a', 'b')")
	o := b.options(b.SlotName(), docs(), side())
	b.init(o)
	b.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
		SELECT pipeline_id, '1', '', '', generation, '0/0' FROM embedsidecar.pipeline`)
	b.MustExec(`UPDATE embedsidecar.scan SET phase = 'done'`)
	state := func() []string {
		return testenv.Values[string](b.Database, `SELECT concat_ws(' ', p.name, p.generation, s.phase, l.row_key)
			FROM embedsidecar.pipeline AS p JOIN embedsidecar.scan AS s USING (pipeline_id)
			JOIN embedsidecar.ledger AS l USING (pipeline_id) ORDER BY 1`)
	}
	before := state()
	b.TakeBack()
	dry := o
	dry.DryRun = true
	if steps := whats(b.init(dry)); !slices.Equal(steps, []string{schemaStep()}) {
		t.Errorf("a dry run shows %q", steps)
	}
	if steps := whats(b.init(o)); !slices.Equal(steps, []string{schemaStep()}) {
		t.Errorf("made %q, want the schema alone", steps)
	}
	if got := state(); !slices.Equal(got, before) {
		t.Errorf("it is %q, was %q", got, before)
	}
}

// P2: nobody uses our tables while the schema is upgraded. Statements that meet the upgrade get a lock error, and
// succeed afterwards. The upgrade also yields to running statements, and retries.
func TestP2_AnUpgradeKeepsEverybodyElseOut(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
			VALUES (1, '1', 1, '3', '0/10', '0/20', now())`)
		db.TakeBack()
		ctx := t.Context()
		old, err := database.Connect(ctx, db.URL(testenv.Owner), database.Options{MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		statements := []string{
			"UPDATE embedsidecar.task SET attempt = attempt + 1", "DELETE FROM embedsidecar.lease",
			"UPDATE embedsidecar.pipeline SET status = status", "DELETE FROM embedsidecar.ledger",
			"UPDATE embedsidecar.lsn_checkpoint SET lsn = lsn", "INSERT INTO embedsidecar.schema_version VALUES (1)",
		}
		upgrading, err := db.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlfiles.Upgrade(ctx, upgrading); err != nil {
			t.Fatal(err)
		}
		for _, sql := range statements {
			if _, err := old.Exec(ctx, sql); !database.LockedOut(err) {
				t.Errorf("%s, beside an upgrade: %v, want that a lock was not to be had", sql, err)
			}
		}
		if err := upgrading.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		working, err := old.Begin(ctx)
		if err == nil {
			_, err = working.Exec(ctx, statements[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		err = pgx.BeginFunc(ctx, old, func(tx pgx.Tx) error { return sqlfiles.Upgrade(ctx, tx) })
		if !database.LockedOut(err) {
			t.Errorf("an upgrade beside one who works: %v, want that a lock was not to be had", err)
		}
		if err := working.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(ctx, old, func(tx pgx.Tx) error { return sqlfiles.Upgrade(ctx, tx) }); err != nil {
			t.Fatal(err)
		}
		db.MustExec(statements[0])
		if n := testenv.Value[int](db, "SELECT attempt FROM embedsidecar.task"); n != 2 {
			t.Errorf("%d of 2 statements took effect", n)
		}
	})
}
