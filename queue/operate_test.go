package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// person is a session of somebody who looks and acts by SQL.
type person struct {
	t    *testing.T
	conn *pgx.Conn
}

func newPerson(t *testing.T, db *testenv.Database, role string) *person {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL(role)+"&application_name=psql")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return &person{t, conn}
}

// sees fails the test unless a query answers with these rows, columns joined by blanks.
func (p *person) sees(sql string, want ...string) {
	p.t.Helper()
	rows, err := p.conn.Query(p.t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var words []string
		for _, v := range row.RawValues() {
			words = append(words, string(v))
		}
		return strings.Join(words, " "), nil
	})
	if err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		p.t.Errorf("%s: %q, want %q", sql, got, want)
	}
}

// refused fails the test unless a statement is refused with this SQLSTATE, in these words, and changes nothing.
func (p *person) refused(sql, state string, words ...string) {
	p.t.Helper()
	_, err := p.conn.Exec(p.t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	pg, ok := err.(*pgconn.PgError) //nolint:errorlint // as the server has sent it
	if !ok || pg.Code != state {
		p.t.Errorf("%s: %v, want SQLSTATE %s", sql, err, state)
		return
	}
	for _, word := range words {
		if !strings.Contains(pg.Message+" "+pg.Hint, word) {
			p.t.Errorf("%s: %s (%s) lacks %q", sql, pg.Message, pg.Hint, word)
		}
	}
}

// The SQL surface by people who may no more than look or act: what each view shows and each action does, that nobody
// else may, and that what is given wrongly is refused clearly and changes nothing.
func TestSQL_ReaderAndOperator(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		f := newFixture(t, testenv.Major(major))
		run := f.db.RunRole()
		readerRole, operatorRole := f.db.SQLRoles()
		reader, operator := newPerson(t, f.db, readerRole), newPerson(t, f.db, operatorRole)
		f.db.MustExec(`INSERT INTO embedsidecar.worker (worker_id, instance, version, slot_name, role, host) OVERRIDING SYSTEM VALUE VALUES (1, 'one', 'v', 'slot', 'work', 'box')`)
		f.db.MustExec(`INSERT INTO embedsidecar.scan (pipeline_id, barrier, rows_expected) VALUES ($1, '3', 9)`, f.id)
		f.db.MustExec(`INSERT INTO embedsidecar.configured (slot_name, instance, session_name, file)
			SELECT 'slot', 'one', current_setting('application_name'), 'c.yaml'`)

		// Rows 1 to 3 are dead letters, 4 is to be tried again, 5 is being embedded, 6 was, and 7 waits.
		for i := 1; i <= 6; i++ {
			if _, err := f.enqueue(t.Context(), change(fmt.Sprint(i), 10)); err != nil {
				t.Fatal(err)
			}
			tasks := f.lease(t, 1)
			o := queue.Outcome{
				Task: tasks[0], Action: queue.Fail, Class: "data", Code: fmt.Sprint("c", i%2), Message: "it is bad",
			}
			switch i {
			case 4:
				o.Action, o.Delay = queue.Later, 1e12
			case 5:
				continue
			case 6:
				f.db.MustExec(`UPDATE embedsidecar.lease SET leased_until = now() - interval '1 s' WHERE place = $1`, tasks[0].Lease.Place)
				continue
			}
			if _, err := f.q.Finish(t.Context(), 1, tasks[0].Lease, 0, []queue.Outcome{o}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.enqueue(t.Context(), change("7", 20)); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*person{reader, operator} {
			p.sees(`SELECT pipeline, pending, running, retrying, failed, cancelled, sidecar_runs, scan_phase FROM embedsidecar.status`, "docs 2 1 1 3 0 t waiting")
			p.sees(`SELECT pipeline, phase, rows_expected, backfill FROM embedsidecar.progress`, "docs waiting 9 t")
			p.sees(`SELECT row_key, state, priority, leased_by FROM embedsidecar.tasks WHERE row_key > '3' ORDER BY row_key`,
				"4 retrying normal ", "5 in_progress normal one", "6 stale normal one", "7 todo normal ")
			p.sees(`SELECT row_key, error_class, error_code, error_message FROM embedsidecar.dead_letters ORDER BY row_key`,
				"1 data c1 it is bad", "2 data c0 it is bad", "3 data c1 it is bad")
			p.sees(`SELECT state, error_class, error_code, rows, sample_key, sample_message FROM embedsidecar.errors ORDER BY 1, 3`,
				"failed data c0 1 2 it is bad", "failed data c1 2 1 it is bad", "retrying data c0 1 4 it is bad")
			p.sees(`SELECT slot_name, exists, active, publication_exists, other_server FROM embedsidecar.slots`, "slot f f f t")
			p.sees(`SELECT instance, runs, rows_leased, role, host, speeds FROM embedsidecar.workers`, "one t 1 work box {}")
			p.sees(`SELECT pipeline, model, priority, enabled FROM embedsidecar.pipelines`, "docs fake normal t")
			p.sees(`SELECT "check", subject, status, state FROM embedsidecar.health WHERE status <> 'ok' ORDER BY 1`, "pipeline docs error copied", "slot slot error copied")
			p.sees(`SELECT instance, name, state FROM embedsidecar.configuration`, "one c.yaml in_force")
			p.sees(`SELECT count(*) FROM embedsidecar.audit`, "0")
			p.sees(`SELECT embedsidecar.backlog(), embedsidecar.backlog('docs'), embedsidecar.caught_up()`, "4 4 f")
		}
		f.mayNot(t, reader, operator, run)
		f.wrongly(t, operator)
		f.acts(t, operator)
	})
}

// mayNot: who only looks may do no more, and who does neither nothing at all; no base table is his.
func (f *fixture) mayNot(t *testing.T, reader, operator *person, run string) {
	t.Helper()
	nobody := newPerson(t, f.db, f.db.Role(""))
	nobody.refused(`SELECT * FROM embedsidecar.status`, "42501")
	for _, sql := range []string{
		`SELECT * FROM embedsidecar.task`, `SELECT secret FROM embedsidecar.installation`, `SELECT embedsidecar.pause()`,
		`SELECT embedsidecar.retry_failed()`, `SELECT embedsidecar.reembed('docs')`, `SELECT embedsidecar.resume('docs', '1 h')`,
		`SELECT embedsidecar.backfill('docs')`,
		`SELECT embedsidecar.set_priority('docs', 'low')`, `SELECT embedsidecar.cancel('docs', '{1}')`,
		`SELECT embedsidecar.discard_dead('docs')`, `SELECT embedsidecar.requeue('docs')`,
		`SELECT embedsidecar.clear_history()`, `SELECT embedsidecar.notify_changes(true)`, `SELECT embedsidecar.prioritise('docs', 'low')`,
		`SELECT embedsidecar.model_change('docs', 'x')`, `SELECT embedsidecar.model_switch('docs')`,
		`SELECT embedsidecar.model_rollback('docs')`, `SELECT embedsidecar.model_drop_old('docs')`,
	} {
		reader.refused(sql, "42501")
	}
	for _, sql := range []string{
		`SELECT * FROM embedsidecar.task`, `UPDATE embedsidecar.pipeline SET enabled = false`, `DELETE FROM embedsidecar.audit_log`,
		`SELECT embedsidecar.set_enabled('docs', true, NULL, false, '')`, `SELECT embedsidecar.add_looks(1, '{1}')`,
		`SELECT embedsidecar.begin_action('x', 1, '{}', '', false)`, `SELECT embedsidecar.create_pipeline('{}')`,
		`SELECT * FROM docs`,
	} {
		operator.refused(sql, "42501")
	}
	for _, sql := range []string{
		`SELECT embedsidecar.pause()`, `SELECT embedsidecar.next_request('x')`,
		`SELECT embedsidecar.finish_request(1, NULL, '{}', NULL)`,
	} {
		newPerson(t, f.db, run).refused(sql, "42501")
	}
	newPerson(t, f.db, run).sees(`SELECT remaining FROM embedsidecar.retry_failed('docs', dry_run => true)`, "4")
}

// wrongly gives actions what they cannot take.
func (f *fixture) wrongly(t *testing.T, operator *person) {
	t.Helper()
	for _, c := range []struct{ sql, state, word string }{
		{`SELECT embedsidecar.pause('dosc')`, "42704", "there are: docs"},
		{`SELECT embedsidecar.pause(repeat('x', 10000000))`, "42704", "there are: docs"},
		{`SELECT embedsidecar.pause($$'; DROP TABLE docs; --$$)`, "42704", "there is no pipeline"},
		{`SELECT embedsidecar.backfill(NULL)`, "22004", "name a pipeline"},
		{`SELECT embedsidecar.backfill('dosc')`, "42704", "there are: docs"},
		{`SELECT embedsidecar.backfill('docs', NULL)`, "22004", "dry_run"},
		{`SELECT embedsidecar.resume(NULL, '1 h')`, "22004", "name a pipeline"},
		{`SELECT embedsidecar.pause(NULL, NULL)`, "22004", "dry_run"},
		{`SELECT embedsidecar.set_priority('docs', 'hihg')`, "22023", "low, normal, high, urgent"},
		{`SELECT embedsidecar.retry_failed('docs', max_rows => 0)`, "22023", "1 to 100000"},
		{`SELECT embedsidecar.retry_failed('docs', continues => 99)`, "22023", "audit_id"},
		{`SELECT embedsidecar.cancel('docs', '{}')`, "22023", "embedsidecar.pause"},
		{`SELECT embedsidecar.cancel('docs', '{1,NULL}')`, "22023", "without NULL"},
		{`SELECT embedsidecar.requeue('docs', '{{1,2},{3,4}}')`, "22023", "without NULL"},
		{`SELECT embedsidecar.requeue('docs', array_fill('x'::text, '{100001}'))`, "54000", "100001 keys"},
		{`SELECT embedsidecar.wait_for(timeout => '-1 s')`, "22023", "1 hour"},
		{`SELECT embedsidecar.wait_for(timeout => NULL)`, "22023", "1 hour"},
		{`SELECT embedsidecar.wait_for(pipeline => 'none')`, "42704", "there are: docs"},
		{`BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT embedsidecar.wait_for()`, "55000", "READ COMMITTED"},
		{`ROLLBACK; BEGIN READ ONLY; SELECT embedsidecar.pause()`, "25006", "read-only"},
	} {
		operator.refused(c.sql, c.state, c.word)
	}
	if _, err := operator.conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	operator.sees(`SELECT count(*) FROM embedsidecar.audit`, "0")
}

// acts does what there is to do, and looks at the entries that it leaves.
func (f *fixture) acts(t *testing.T, operator *person) {
	t.Helper()
	operator.sees(`SELECT embedsidecar.pause('docs', dry_run => true), embedsidecar.pause('docs', said_by => 'ann')`, "would_be_paused paused")
	operator.sees(`SELECT embedsidecar.pause('docs'), embedsidecar.wait_for(), embedsidecar.resume('docs')`, "already_paused f resumed")
	operator.sees(`SELECT embedsidecar.pause(), embedsidecar.resume(), embedsidecar.resume()`, "paused resumed already_on")
	operator.sees(`SELECT embedsidecar.set_priority('docs', 'urgent'), embedsidecar.set_priority('docs', 'urgent')`, "set already_so")
	operator.sees(`SELECT * FROM embedsidecar.retry_failed('docs', code => 'c1', dry_run => true)`, "0 2 ")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.retry_failed('docs', code => 'c1', max_rows => 1)`, "1 1")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.retry_failed('docs', code => 'c1', max_rows => 5, continues => (SELECT max(audit_id) FROM embedsidecar.audit))`, "1 ")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.discard_dead('docs')`, "1 0")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.cancel('docs', '{1,4,5,nobody}')`, "3 0")
	operator.sees(`SELECT string_agg(row_key, ' ' ORDER BY row_key) FROM embedsidecar.tasks WHERE state = 'cancelled'`, "1 2 4 5")
	operator.sees(`SELECT failed, cancelled FROM embedsidecar.status`, "0 4")
	// What is in work at that moment is finished; a try that fails leaves it cancelled.
	held := testenv.Value[int64](f.db, `SELECT place FROM embedsidecar.lease WHERE leased_until > now()`)
	life := testenv.Value[time.Time](f.db, `SELECT embedsidecar.server_life()`)
	if _, err := f.db.Pool.Exec(t.Context(), sqlfiles.Query("finish_tasks"), queue.FinishArgs(1,
		queue.Lease{
			PipelineID: f.id, Place: held,
			Token: testenv.Value[int64](f.db, `SELECT token FROM embedsidecar.lease WHERE place = $1`, held), Life: life,
		}, 0,
		[]queue.Outcome{{
			Task: queue.Task{TaskID: testenv.Value[int64](f.db, `SELECT task_id FROM embedsidecar.task WHERE row_key = '5'`), Gen: 1}, Action: queue.Later,
			Class: "data", Code: "c", Message: "m",
		}})); err != nil {
		t.Fatal(err)
	}
	operator.sees(`SELECT state, scheduled_at IS NULL FROM embedsidecar.tasks WHERE row_key = '5'`, "cancelled t")
	// A change has it looked at again, and so has a requeue.
	if _, err := f.enqueue(t.Context(), change("2", 30)); err != nil {
		t.Fatal(err)
	}
	operator.sees(`SELECT changed, remaining FROM embedsidecar.requeue('docs', '{1,new}')`, "2 0")
	operator.sees(`SELECT remaining FROM embedsidecar.requeue('docs', dry_run => true)`, "2")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.requeue('docs')`, "2 0")
	operator.sees(`SELECT string_agg(row_key, ' ' ORDER BY row_key) FROM embedsidecar.tasks WHERE state = 'todo'`, "1 2 3 4 5 7 new")
	f.db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, text_hash, vector_hash, generation, lsn)
		SELECT $1, i::text, '', 'x', 'v', 1, '0/1' FROM generate_series(11, 13) AS i`, f.id)
	operator.sees(`SELECT changed, remaining FROM embedsidecar.reembed('docs', '{13}')`, "1 0")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.reembed('docs', max_rows => 1)`, "1 1")
	operator.sees(`SELECT phase, reason FROM embedsidecar.progress`, "waiting backfill")
	f.db.MustExec(`UPDATE embedsidecar.scan SET rows_seen = 5, tasks_made = 2, started_at = now(), finished_at = now()`) // by one before
	operator.sees(`SELECT phase, rows_seen, tasks_made, started_at IS NULL, finished_at IS NULL FROM embedsidecar.progress`, "waiting 0 0 t f")
	f.db.MustExec(`UPDATE embedsidecar.scan SET phase = 'rows', requested_at = started_at + interval '1 s'`)
	operator.sees(`SELECT rows_seen, requested_at > started_at FROM embedsidecar.progress`, "5 t")
	operator.sees(`SELECT changed, remaining FROM embedsidecar.reembed('docs', continues => (SELECT max(audit_id) FROM embedsidecar.audit WHERE action = 'reembed'))`, "1 0")
	operator.sees(`SELECT embedsidecar.backfill('docs', dry_run => true), embedsidecar.backfill('docs', said_by => 'ann')`, "scan_would_be_requested scan_requested")
	operator.sees(`SELECT action || ' ' || coalesce(pipeline, '-') || ' ' || result || ' ' || changed || ' ' || said_by FROM embedsidecar.audit ORDER BY audit_id`,
		"pause docs paused 1 ann", "pause docs already_paused 0 ", "resume docs resumed 1 ", "pause - paused 1 ",
		"resume - resumed 1 ", "resume - already_on 0 ", "set_priority docs set 1 ", "set_priority docs already_so 0 ",
		"retry docs retried 2 ", "discard docs discarded 1 ", "cancel docs cancelled 3 ", "requeue docs requeued 2 ",
		"requeue docs requeued 2 ", "reembed docs reembed_requested 1 ",
		"reembed docs reembed_requested 2 ", "scan docs rows 0 ", "backfill docs scan_requested 0 ann")
	operator.sees(`SELECT DISTINCT role = session_user, application, client_addr IS NOT NULL, acted_at <= finished_at FROM embedsidecar.audit WHERE action <> 'scan'`, "t psql t t")
	operator.sees(`SELECT finished_at IS NULL, arguments ? 'asked_by' FROM embedsidecar.audit WHERE action = 'scan'`, "t t")
	operator.sees(`SELECT arguments FROM embedsidecar.audit WHERE action = 'cancel'`, `{"keys": ["1", "4", "5", "nobody"], "keys_given": 4}`)
}

// Every view and function says what it is, and so does every column: \d+ reads like a paper.
func TestSQL_EverythingHasAComment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, thing := range testenv.Values[string](f.db, `
		SELECT c.relname FROM pg_class AS c
		WHERE c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind IN ('r', 'p', 'v')
			AND c.relname !~ '^history_|^schema_version$' AND obj_description(c.oid, 'pg_class') IS NULL
		UNION ALL
		SELECT c.relname || '.' || a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'embedsidecar'::regnamespace AND c.relkind = 'v' AND a.attnum > 0
			AND col_description(c.oid, a.attnum) IS NULL
		UNION ALL
		SELECT p.oid::regprocedure::text FROM pg_proc AS p
		WHERE p.pronamespace = 'embedsidecar'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL`) {
		t.Errorf("%s has no comment", thing)
	}
	// What runs with the rights of its owner looks for names where nobody can put any, and nobody may run it unasked.
	for _, thing := range testenv.Values[string](f.db, `
		SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'embedsidecar'::regnamespace
		AND (p.prosecdef AND (p.proconfig @> '{"search_path=pg_catalog, pg_temp"}') IS NOT TRUE OR has_function_privilege('public', p.oid, 'EXECUTE'))`) {
		t.Errorf("%s is open to others", thing)
	}
	// Nor does anybody keep our types from being altered.
	for _, thing := range testenv.Values[string](f.db, `SELECT t.oid::regtype::text FROM pg_type AS t
		WHERE t.typnamespace = 'embedsidecar'::regnamespace AND t.typelem = 0 AND has_type_privilege('public', t.oid, 'USAGE')`) {
		t.Errorf("columns of others may be of type %s", thing)
	}
}
