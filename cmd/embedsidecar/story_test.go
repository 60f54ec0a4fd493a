package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// usual is an idle pipeline with a streaming sidecar; undone undoes what some stories did. Tables are emptied one by
// one: a dashboard that reads them in another order at this moment would deadlock.
const (
	undone = `ALTER TABLE IF EXISTS docs_moved RENAME TO docs`
	usual  = `TRUNCATE embedsidecar.task; TRUNCATE embedsidecar.aside; TRUNCATE embedsidecar.ledger;
		INSERT INTO embedsidecar.ledger TABLE kept;
		UPDATE embedsidecar.installation SET enabled = true;
		UPDATE embedsidecar.pipeline SET enabled = true, status = 'active', status_detail = '', active_minutes = NULL,
			active_hours = '';
		UPDATE embedsidecar.lsn_checkpoint SET system_id = (SELECT system_identifier::text FROM pg_control_system());
		UPDATE embedsidecar.scan SET phase = 'done', gap = false, finished_at = now();
		UPDATE embedsidecar.route SET generation = (SELECT generation FROM embedsidecar.pipeline);
		DELETE FROM embedsidecar.worker;
		INSERT INTO embedsidecar.worker (instance, version, slot_name, stream) SELECT 'one', 'v', slot_name, 'streaming' FROM embedsidecar.lsn_checkpoint`
)

func trouble(code health.Code) string {
	return fmt.Sprintf(`UPDATE embedsidecar.worker SET problems = (SELECT jsonb_build_object(pipeline_id::text,
		'{"code": "%s", "detail": "it says why"}'::jsonb) FROM embedsidecar.pipeline)`, code)
}

func queued(state string) string {
	return fmt.Sprintf(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
		committed_at, due_at, error_class, error_code, error_message) SELECT pipeline_id, '1', '%s', 1, '3', '0/1', '0/1',
		now(), CASE WHEN '%[1]s' = 'retrying' THEN now() + interval '1 h' END,
		'data', 'bad', 'it is bad' FROM embedsidecar.pipeline`, state)
}

const forgotten = `DELETE FROM embedsidecar.ledger WHERE row_key = '1'`

const gone = `UPDATE embedsidecar.worker SET stream = '%s', stream_detail = 'because of it'`

// stories are events after usual, and the states that follow.
var stories = []struct {
	happens string
	state   health.Code
	slot    bool // the state is that of the slot
}{
	{"SELECT 1", health.UpToDate, false},
	{`UPDATE embedsidecar.installation SET enabled = false`, health.Paused, false},
	{`UPDATE embedsidecar.pipeline SET enabled = false`, health.Paused, false},
	{`UPDATE embedsidecar.installation SET enabled = false; UPDATE embedsidecar.pipeline SET enabled = false`, health.Paused, false},
	{`UPDATE embedsidecar.pipeline SET active_minutes = '{}', active_hours = 'manual', active_zone = 'UTC'`, health.OutsideHours, false},
	{`UPDATE embedsidecar.pipeline SET status = 'missing', status_detail = 'it was dropped'`, health.Missing, false},
	{`UPDATE embedsidecar.pipeline SET status = 'misconfigured', status_detail = 'a column is gone'`, health.Misconfigured, false},
	{`UPDATE embedsidecar.pipeline SET status = 'unpublished', status_detail = 'it left'`, health.Unpublished, false},
	{trouble(health.Disabled), health.Disabled, false},
	{trouble(health.PluginUnknown), health.PluginUnknown, false},
	{trouble(health.PluginDown), health.PluginDown, false},
	{trouble(health.PluginDown) + ";" + queued("retrying") + ";" + forgotten, health.PluginDown, false},
	{trouble(health.OtherModel), health.OtherModel, false},
	{trouble(health.Failing) + ";" + queued("todo"), health.Failing, false},
	{trouble("odd"), health.Misconfigured, false},
	{`UPDATE embedsidecar.route SET generation = 0`, health.Unacknowledged, false},
	{`UPDATE embedsidecar.scan SET phase = 'rows', reason = 'requested', rows_seen = 0, finished_at = NULL`, health.Backfill, false},
	{`UPDATE embedsidecar.scan SET phase = 'orphans', reason = 'requested', rows_seen = 4, gap = true`, health.Comparing, false},
	{`INSERT INTO embedsidecar.aside (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at, reason)
		SELECT pipeline_id, '1', 1, 3, '0/1', '0/1', now(), '' FROM embedsidecar.pipeline`, health.QueueHeld, false},
	{queued("todo"), health.Working, false},
	{queued("retrying") + ";" + forgotten, health.Working, false},
	{queued("failed"), health.RowsFailed, false},
	{queued("cancelled"), health.RowsCancelled, false},
	{fmt.Sprintf(gone, "stuck"), health.StreamStuck, true},
	{fmt.Sprintf(gone, "standby"), health.StandbyOnly, true},
	{`DELETE FROM embedsidecar.worker`, health.StandbyOnly, true},
	{`UPDATE embedsidecar.lsn_checkpoint SET system_id = '42'`, health.Copied, true},
	{`ALTER TABLE docs RENAME TO docs_moved; CREATE TABLE docs (id bigint)`, health.Replaced, false},
}

// unread are stories of a slot without a reader, and of a missing slot.
var unread = []struct {
	happens string
	state   health.Code
	slot    bool
}{
	{`DELETE FROM embedsidecar.worker`, health.NoSidecar, true},
	{fmt.Sprintf(gone, "none"), health.NoSidecar, true},
	{fmt.Sprintf(gone, "stuck"), health.StreamStuck, true},
	{`SELECT pg_drop_replication_slot(slot_name) FROM embedsidecar.lsn_checkpoint`, health.SlotLost, true},
	{fmt.Sprintf(gone, "making"), health.SlotWaiting, true},
	{fmt.Sprintf(gone, "stuck") + `; UPDATE embedsidecar.lsn_checkpoint SET consistent_point = '0/0'`, health.SlotWaiting, true},
}

// TestP10_AStoryIsTheSameByEveryDoor: status, check and explain on the command line, SQL, HTTP and a page of the
// dashboard report the same state of a pipeline, for the same reason, with the same hint.
func TestP10_AStoryIsTheSameByEveryDoor(t *testing.T) {
	t.Parallel()
	d := &doors{stage: newStage(t, 4)}
	d.once(0)
	d.db.MustExec("CREATE TABLE kept AS TABLE embedsidecar.ledger")
	reader, _ := d.db.SQLRoles()
	var err error
	if d.conn, err = pgx.Connect(t.Context(), d.db.URL(reader)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.conn.Close(context.Background()) })
	d.serve()
	release := d.holds()
	for _, s := range stories {
		d.tells(s.happens, s.state, s.slot)
	}
	release()
	for _, s := range unread {
		d.tells(s.happens, s.state, s.slot)
	}
}

// holds takes the slot as a sidecar does.
func (d *doors) holds() (release func()) {
	d.t.Helper()
	conn, err := database.ConnectReplication(d.t.Context(), d.db.URL(testenv.Owner)+"&wal_sender_timeout=0",
		database.Options{ApplicationName: "embedsidecar/one"})
	if err != nil {
		d.t.Fatal(err)
	}
	publication := testenv.Value[string](d.db, "SELECT publication FROM embedsidecar.lsn_checkpoint")
	_ = conn.Exec(d.t.Context(), fmt.Sprintf(`START_REPLICATION SLOT "%s" LOGICAL 0/0 (proto_version '1', publication_names '%q')`, d.slot, publication))
	is := func(want bool) {
		d.t.Helper()
		testenv.Eventually(d.t, waitTimeout, func() (bool, string) {
			active := testenv.Value[bool](d.db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", d.slot)
			return active == want, fmt.Sprintf("active: %t", active)
		})
	}
	is(true)
	return func() {
		_ = conn.Close(context.Background())
		d.db.MustExecSuper("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active", d.slot)
		is(false)
	}
}

// steady removes from a reason the transactions that a slot waits for, since other tests on the server begin and end
// transactions. It also removes sessions that are left for a moment from the command before.
func steady(reason string) string {
	before, _, _ := strings.Cut(reason, ", and the server waits for ")
	return left.ReplaceAllString(before, "")
}

var left = regexp.MustCompile(
	`; embedsidecar/\S+ is connected: if it is a sidecar, its log says why it could not register`)

// tells fails the test unless every door reports the same.
func (d *doors) tells(happens string, want health.Code, ofSlot bool) {
	d.t.Helper()
	moved := testenv.Value[bool](d.db, "SELECT to_regclass('public.docs_moved') IS NOT NULL")
	if moved {
		d.db.MustExec("DROP TABLE docs")
	}
	for sql := range strings.SplitSeq(undone+";"+usual+";"+happens, ";") {
		d.db.MustExec(sql)
	}
	var told health.State
	var miss bool
	var works bool
	if err := d.conn.QueryRow(d.t.Context(), `SELECT state, reason, hints, may_miss, works FROM embedsidecar.status`).
		Scan(&told.Code, &told.Reason, &told.Hints, &miss, &works); err != nil {
		d.t.Fatal(err)
	}
	told.Reason = steady(told.Reason)
	if told.Code != want {
		d.t.Errorf("%s: by SQL it is %s: %s, want %s", happens, told.Code, told, want)
	}
	differs := func(door, got string) {
		d.t.Errorf("%s: by %s: %s\nby SQL: %s: %s", happens, door, got, told.Code, told)
	}
	same := func(door string, p *report.Pipeline) {
		if p.State != told.Code || steady(p.Reason) != told.Reason || !slices.Equal(p.Hints, told.Hints) ||
			p.MayMiss != miss || (p.Coverage == nil) != (miss && p.Known > 0) {
			differs(door, fmt.Sprintf("%s: %s; coverage %v", p.State, p.Health(), p.CoverageOr(-1)))
		}
	}
	stdout, _ := d.run(0, "status", "-o", "json")
	same("status", &decoded[report.Status](d.t, stdout).Pipelines[0])
	testenv.Eventually(d.t, waitTimeout, func() (bool, string) { // some answers are cached
		p := decoded[report.Status](d.t, d.ask(http.MethodGet, "/status", "")).Pipelines[0]
		page := html.UnescapeString(d.page("/pipelines/public.docs"))
		good := p.State == told.Code && steady(p.Reason) == told.Reason && slices.Equal(p.Hints, told.Hints)
		capital := strings.ToUpper(told.Reason[:1]) + told.Reason[1:]
		for _, part := range append(told.Hints, capital) {
			good = good && (strings.Contains(page, part) || told.Code == health.Working || told.Code == health.QueueHeld)
		}
		return good, fmt.Sprintf("%s: over HTTP %s: %s, want %s: %s; the page:\n%s", happens, p.State, p.Health(), told.Code, told, page)
	})
	d.checks(happens, told, ofSlot)
	d.explains(happens, told, works)
}

// checks compares the findings of check with the view of findings.
func (d *doors) checks(happens string, told health.State, ofSlot bool) {
	d.t.Helper()
	what := "pipeline"
	if ofSlot {
		what = "slot"
	}
	var severity, state string
	if err := d.conn.QueryRow(d.t.Context(), `SELECT status, state FROM embedsidecar.health WHERE "check" = $1`, what).Scan(&severity, &state); err != nil {
		d.t.Fatal(err)
	}
	if state != string(told.Code) {
		d.t.Errorf("%s: health has %s, want %s", happens, state, told.Code)
	}
	exit := 0
	if testenv.Value[bool](d.db, `SELECT bool_or(status = 'error' AND "check" <> 'sidecar') FROM embedsidecar.health`) {
		exit = exitFailed
	}
	stdout, _ := d.run(exit, "check", "-o", "json")
	if severity == "ok" {
		return
	}
	reason, _, _ := strings.Cut(told.Reason, " (")
	if !slices.ContainsFunc(decoded[map[string][]check.Finding](d.t, stdout)["checks"], func(f check.Finding) bool {
		return strings.HasPrefix(f.Name, what) && string(f.Status) == severity && slices.Equal(f.Hint, told.Hints) &&
			strings.HasPrefix(f.Detail, told.Code.Word()+": "+reason)
	}) {
		d.t.Errorf("%s: check does not say %s: %s: %s", happens, severity, told.Code, stdout)
	}
}

// explains compares explain by SQL with the command line.
func (d *doors) explains(happens string, told health.State, works bool) {
	d.t.Helper()
	facts := func(topic string) (f struct {
		State, Reason, Verdict string
		Hints                  []string
	},
	) {
		if err := d.conn.QueryRow(d.t.Context(), `SELECT facts FROM embedsidecar.explain('docs', '1') WHERE topic = $1`, topic).Scan(&f); err != nil {
			d.t.Fatal(err)
		}
		return f
	}
	stdout, _ := d.run(0, "explain", "public.docs", "1", "-o", "json")
	story := decoded[map[string][]explain.Story](d.t, stdout)["rows"][0]
	sql, verdict := facts("pipeline"), facts("verdict")
	if sql.State != string(told.Code) || steady(sql.Reason) != told.Reason || story.State.Code != told.Code ||
		steady(story.State.Reason) != told.Reason || story.State.Works != works {
		d.t.Errorf("%s: explain says %+v by SQL, %+v on the command line, want %s: %s", happens, sql, story.State, told.Code, told)
	}
	// A read of the row may show that its vector is right, whatever is pending, or that it cannot be read.
	switch got := story.Verdict; {
	case got.Code == explain.Current, got.Code == explain.Unjudged:
	case string(got.Code) != verdict.Verdict, !slices.Equal(got.Hints, verdict.Hints):
		d.t.Errorf("%s: verdict %s: %s on the command line, %s: %s by SQL", happens, got.Code, got, verdict.Verdict, verdict.Hints)
	case strings.Contains(happens, forgotten) && works != (got.Code == explain.Retrying):
		d.t.Errorf("%s: verdict %s: %s of a row that failed, while the pipeline works: %t", happens, got.Code, got, works)
	}
}
