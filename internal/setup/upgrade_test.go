package setup_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// What waits, is leased, is tried again or has failed in a database of the version before is kept, and so is the
// ledger. The way back works, too.
func TestMigrations_KeepTasksAndLeases(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	conn, err := pgx.Connect(t.Context(), db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	db.MigrateTo(1)
	exec(`INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline, consistent_point, lsn) VALUES ('slot', 'pub', 0, '0', 1, '0/1', '0/1')`)
	exec(`INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns,
		key_columns, destination_table, destination_schema, dims, plugin, model, fingerprint)
		VALUES ('docs', 'slot', 1, 'public', 'docs', '{body}', '{id}', 'docs_embedding', 'public', 3, 'fake', 'fake', 'f')`)
	exec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn, next_lsn,
		committed_at, due_at, lease_token, leased_by, leased_until)
		SELECT p.pipeline_id, s.state, s.state::embedsidecar.task_state, 1, '3', '0/10', '0/20', CASE s.state
		WHEN 'in_progress' THEN '0/20'::pg_lsn END, now(),
			CASE s.state WHEN 'retrying' THEN now() + interval '1 h' END, CASE s.state WHEN 'in_progress' THEN 7 END,
			CASE s.state WHEN 'in_progress' THEN 1 END,
			CASE s.state WHEN 'in_progress' THEN now() + interval '1 h' END
		FROM embedsidecar.pipeline AS p, unnest('{todo,in_progress,retrying,failed}'::text[]) AS s (state)`)
	exec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn) SELECT pipeline_id, 'todo', '', '', 1, '0/1' FROM embedsidecar.pipeline`)
	kept := func() []string {
		t.Helper()
		rows, err := conn.Query(t.Context(),
			`SELECT concat_ws(' ', row_key, state, first_lsn, due_at IS NOT NULL) FROM embedsidecar.task ORDER BY 1
			LIMIT CASE (SELECT count(*) FROM embedsidecar.ledger) WHEN 1 THEN 100 ELSE 0 END`)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := []string{"failed failed 0/10 f", "in_progress todo 0/10 f", "retrying retrying 0/10 t", "todo todo 0/10 f"}
	all, err := migrate.FindMigrations(sqlfiles.Migrations())
	if err != nil {
		t.Fatal(err)
	}
	last := int32(len(all))
	for _, version := range []int32{last, 1, last} {
		db.MigrateTo(version)
		if got := kept(); !slices.Equal(got, want) {
			t.Errorf("at version %d: %q, want %q", version, got, want)
		}
		// What the older version knew is no state any more.
		_, err := conn.Exec(t.Context(), `UPDATE embedsidecar.task SET state = 'in_progress' WHERE row_key = 'in_progress'`)
		if refused := err != nil; refused != (version == last) {
			t.Errorf("at version %d in_progress is stored: %v", version, err)
		}
	}
	// A row that was cancelled is open again in the version before, which knows no such thing.
	const cancel = `UPDATE embedsidecar.task SET state = 'cancelled' WHERE row_key IN ('todo', 'failed')`
	exec(cancel)
	exec(`SELECT embedsidecar.notify_changes(true)`)
	db.MigrateTo(2)
	want = []string{"failed todo 0/10 f", "in_progress todo 0/10 f", "retrying retrying 0/10 t", "todo todo 0/10 f"}
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("what was cancelled is %q", got)
	}
	if _, err := conn.Exec(t.Context(), cancel); err == nil {
		t.Error("version 2 stores a cancelled task")
	}
	db.MigrateTo(last)
	if got := kept(); !slices.Equal(got, want) {
		t.Errorf("once more at the last version: %q", got)
	}
	exec(cancel)
}

// A database that the version before has set up is taken over by init: its tables become those of this version before
// anything is read from them, and no row is looked at again.
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
	b.MigrateTo(1)
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

// The way back of the eighth migration makes two views anew: comments, grants and answers are those of before.
func TestMigrations_TheWayBackKeepsViews(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		reader, _ := db.SQLRoles()
		views := func() []string {
			return testenv.Values[string](db, `
				SELECT concat_ws(' ', c.relname, c.relowner::regrole, a.attname, col_description(c.oid, a.attnum),
					obj_description(c.oid), (SELECT string_agg(x.privilege_type || x.grantee::regrole, ' ' ORDER BY x.grantee)
					FROM aclexplode(c.relacl) AS x WHERE x.grantee <> c.relowner))
				FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
				WHERE c.relname IN ('workers', 'health') AND c.relnamespace = 'embedsidecar'::regnamespace
					AND a.attname NOT IN ('role', 'host', 'speeds') ORDER BY 1`)
		}
		for _, version := range []int32{7, 8} {
			before := views()
			db.MigrateTo(version)
			if diff := cmp.Diff(before, views()); diff != "" || len(before) == 0 {
				t.Errorf("at version %d (-before +after):\n%s", version, diff)
			}
			as, err := pgx.Connect(t.Context(), db.URL(reader))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := as.Exec(t.Context(), "SELECT FROM embedsidecar.workers, embedsidecar.health"); err != nil {
				t.Errorf("at version %d a reader is refused: %v", version, err)
			}
			_ = as.Close(t.Context())
		}
	})
}
