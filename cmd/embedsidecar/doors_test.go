package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// doors are the three ways to act, as a role that may act and no more: the command line, SQL, and HTTP.
type doors struct {
	*stage
	conn  *pgx.Conn
	base  string
	token string

	browser  *http.Client
	signedIn bool
}

// newDoors makes a database with four embedded rows and a dashboard, without a sidecar.
func newDoors(t *testing.T, major int) *doors {
	t.Helper()
	d := &doors{stage: newStage(t, 4, testenv.Major(major))}
	d.once(0)
	d.db.RunRole()
	_, operator := d.db.SQLRoles()
	d.db.MustExec(`CREATE SCHEMA saved; CREATE TABLE saved.ledger AS TABLE embedsidecar.ledger; CREATE TABLE saved.scan AS TABLE embedsidecar.scan`)
	var err error
	if d.conn, err = pgx.Connect(t.Context(), d.db.URL(operator)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.conn.Close(t.Context()) })
	d.as(operator)
	d.set("EMBEDSIDECAR_TRUST_OWNER=" + testenv.Owner)
	d.serve()
	return d
}

// serve starts the dashboard, and signs in.
func (d *doors) serve() {
	t := d.t
	t.Helper()
	process := d.background("dashboard")
	link := regexp.MustCompile(`http:\S+/login#token=\S+`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		select {
		case <-process.done:
			t.Fatal(process.text())
		default:
		}
		return link.MatchString(process.text()), process.text()
	})
	at, err := url.Parse(link.FindString(process.text()))
	if err != nil {
		t.Fatal(err)
	}
	d.base, d.token = "http://"+at.Host+"/api/v1", strings.TrimPrefix(at.Fragment, "token=")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.browser = &http.Client{Jar: jar}
	t.Cleanup(d.browser.CloseIdleConnections)
}

// page returns a page as a signed-in user sees it.
func (d *doors) page(path string) string {
	d.t.Helper()
	root := strings.TrimSuffix(d.base, "/api/v1")
	send := func(method, path, form string) string {
		r, err := http.NewRequestWithContext(d.t.Context(), method, root+path, strings.NewReader(form))
		if err != nil {
			d.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "text/html")
		answer, err := d.browser.Do(r)
		if err != nil {
			d.t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		content, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			d.t.Fatalf("%s %s: %v, %d %s", method, path, err, answer.StatusCode, content)
		}
		return string(content)
	}
	if !d.signedIn {
		send(http.MethodPost, "/login", url.Values{"token": {d.token}}.Encode())
		d.signedIn = true
	}
	return send(http.MethodGet, path, "")
}

// post acts over HTTP, and returns the answer.
func (d *doors) post(path, body string) string {
	d.t.Helper()
	return d.ask(http.MethodPost, path, body)
}

// ask sends a request, and returns the answer.
func (d *doors) ask(method, path, body string) string {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		d.t.Fatalf("%s %s %s: %v, %d %s", method, path, body, err, answer.StatusCode, content)
	}
	return string(content)
}

// reset restores the initial state: rows 1 and 2 are dead letters, 3 is retrying, 4 is cancelled, and 5 to 8, which do
// not exist, are pending.
func (d *doors) reset(before string) {
	d.t.Helper()
	d.db.MustExec(`TRUNCATE embedsidecar.task, embedsidecar.lease, embedsidecar.audit_log, embedsidecar.scan, embedsidecar.ledger`)
	d.db.MustExec(`INSERT INTO embedsidecar.ledger TABLE saved.ledger; INSERT INTO embedsidecar.scan TABLE saved.scan`)
	d.db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true, lane = 1, open_until = NULL; UPDATE embedsidecar.installation SET enabled = true`)
	d.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn, last_lsn,
		committed_at, due_at, attempt, error_class, error_code, error_message)
		SELECT p.pipeline_id, i::text, s.state, 1, '3', '0/1', '0/1', now() - interval '1 h',
		       CASE s.state WHEN 'retrying' THEN now() + interval '1 h' END, CASE WHEN i < 4 THEN 8 ELSE 0 END,
		       CASE WHEN i < 4 THEN 'data' END, CASE WHEN i < 4 THEN 'c' || i % 2 END, CASE WHEN i < 4 THEN 'refused' END
		FROM   embedsidecar.pipeline AS p, generate_series(1, 8) AS i,
		       LATERAL (SELECT (CASE WHEN i < 3 THEN 'failed' WHEN i = 3 THEN 'retrying' WHEN i = 4 THEN 'cancelled'
		       ELSE 'todo' END)::embedsidecar.task_state) AS s (state)`)
	if before != "" {
		d.db.MustExec(before)
		d.db.MustExec(`TRUNCATE embedsidecar.audit_log`)
	}
}

// left returns the state after an action: the queue in order, switches, scans, ledger and audit entries, without times,
// addresses and the name that a program gave.
func (d *doors) left() string {
	d.t.Helper()
	return strings.Join(testenv.Values[string](d.db, `
		SELECT concat_ws(' ', 'task', row_key, state, lane, attempt, error_code, due_at IS NULL,
		       rank() OVER (PARTITION BY lane ORDER BY seq)) FROM embedsidecar.task
		UNION ALL SELECT concat_ws(' ', 'pipeline', enabled, lane, open_until > now() + interval '1 h')
		FROM   embedsidecar.pipeline
		UNION ALL SELECT concat_ws(' ', 'all', enabled) FROM embedsidecar.installation
		UNION ALL SELECT concat_ws(' ', 'scan', phase, reason) FROM embedsidecar.scan
		UNION ALL SELECT concat_ws(' ', 'ledger', row_key, encode(vector_hash, 'hex')) FROM embedsidecar.ledger
		UNION ALL SELECT concat_ws(' ', 'trigger', t.tgrelid::regclass, t.tgname)
		FROM   pg_trigger AS t WHERE t.tgname = 'tell'
		UNION ALL SELECT concat_ws(' ', 'audit', rank() OVER (ORDER BY audit_id), role_name, action, pipeline, arguments,
		       result, changed) FROM embedsidecar.audit_log WHERE action <> 'bulk' -- which is no one statement by SQL
		ORDER BY 1`), "\n")
}

// TestP10_AnActionIsTheSameByEveryDoor: every action by command line, SQL and HTTP, as the role that may act and no
// more, leaves the same state and the same audit entries: who, what, which rows and how many. Only the name that a
// program gave differs, and it is recorded.
func TestP10_AnActionIsTheSameByEveryDoor(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		d := newDoors(t, major)
		const paused, allPaused = `UPDATE embedsidecar.pipeline SET enabled = false`, `UPDATE embedsidecar.installation SET enabled = false`
		for _, c := range []struct{ before, cli, sql, path, body string }{
			{"", "pause docs", `pause('docs')`, "/pipelines/docs/pause", ""},
			{paused, "pause docs", `pause('docs')`, "/pipelines/docs/pause", ""},
			{"", "pause", `pause()`, "/pause", ""},
			{paused, "resume docs", `resume('docs')`, "/pipelines/docs/resume", ""},
			{allPaused, "resume", `resume()`, "/resume", ""},
			{paused, "resume docs --for 2h", `resume('docs', '2 hours')`, "/pipelines/docs/resume", `{"for": "2h"}`},
			{"", "resume docs --for 0s", `resume('docs', '0')`, "/pipelines/docs/resume", `{"for": "0s"}`},
			{"", "backfill docs", `backfill('docs')`, "/pipelines/docs/backfill", ""},
			{"", "reembed docs 1 4", `reembed('docs', '{1,4}')`, "/pipelines/docs/reembed", `{"keys": ["1", "4"]}`},
			{"", "reembed docs", `reembed('docs')`, "/pipelines/docs/reembed", ""},
			{"", "tasks prioritise docs high", `set_priority('docs', 'high')`, "/pipelines/docs/priority", `{"priority": "high"}`},
			{"", "tasks prioritise docs urgent 3 6 8", `prioritise('docs', 'urgent', '{3,6,8}')`, "/tasks/prioritise", `{"pipelines": ["docs"], "priority": "urgent", "keys": ["3", "6", "8"]}`},
			{"", "tasks prioritise docs low --waiting", `prioritise('docs', 'low')`, "/tasks/prioritise", `{"pipelines": ["docs"], "priority": "low"}`},
			{"", "tasks retry docs", `retry_failed('docs')`, "/tasks/retry", `{"pipelines": ["docs"]}`},
			{"", "tasks retry docs --code c1 --older-than 10m", `retry_failed('docs', code => 'c1', older_than => '10 min')`, "/tasks/retry", `{"pipelines": ["docs"], "code": "c1", "older_than": "10m"}`},
			{"", "tasks discard docs --class data", `discard_dead('docs', class => 'data')`, "/tasks/discard", `{"pipelines": ["docs"], "class": "data"}`},
			{"", "tasks discard docs 2", `discard_dead('docs', keys => '{2}')`, "/tasks/discard", `{"pipelines": ["docs"], "keys": ["2"]}`},
			{"", "tasks requeue docs", `requeue('docs')`, "/tasks/requeue", `{"pipelines": ["docs"]}`},
			{"", "tasks requeue docs 1 2 9", `requeue('docs', '{1,2,9}')`, "/tasks/requeue", `{"pipelines": ["docs"], "keys": ["1", "2", "9"]}`},
			{"", "tasks cancel docs 1 3 5 6", `cancel('docs', '{1,3,5,6}')`, "/tasks/cancel", `{"pipelines": ["docs"], "keys": ["1", "3", "5", "6"]}`},
		} {
			d.same(c.before, c.cli, "SELECT embedsidecar."+c.sql, func() {
				if said := d.post(c.path, c.body); !strings.Contains(said, `"outcomes":[{`) {
					t.Errorf("%s: %s", c.path, said)
				}
			})
		}
		for _, name := range []string{"docs", ""} {
			of, quoted := strings.TrimSuffix("/pipelines/"+name, "/pipelines/"), strings.ReplaceAll("'"+name+"'", "''", "")
			d.same("", "bulk --drain 0s "+name+" -- true",
				fmt.Sprintf("SELECT embedsidecar.pause(%[1]s); SELECT embedsidecar.resume(%[1]s)", quoted), func() {
					d.post(of+"/pause", "")
					if n := testenv.Value[int](d.db, `SELECT count(*) FROM embedsidecar.pipeline AS p, embedsidecar.installation AS i WHERE p.enabled AND i.enabled`); n != 0 {
						t.Error("it is at work during the load")
					}
					d.post(of+"/resume", "")
				})
		}
	})
}

// same fails the test unless an action has the same effect by every door, and any effect at all.
func (d *doors) same(before, cli, sql string, overHTTP func()) {
	d.t.Helper()
	var left, by []string
	for _, act := range []func(){
		func() { d.run(0, strings.Fields(cli)...) },
		func() {
			if _, err := d.conn.Exec(d.t.Context(), sql); err != nil {
				d.t.Fatalf("%s: %v", sql, err)
			}
		},
		overHTTP,
	} {
		d.reset(before)
		untouched := d.left()
		act()
		left = append(left, d.left())
		by = append(by, testenv.Value[string](d.db, `SELECT string_agg(DISTINCT said_by, ', ') FROM embedsidecar.audit_log`))
		if d.left() == untouched {
			d.t.Errorf("%s: nothing was done, by door %d", cli, len(left))
		}
	}
	if left[1] != left[0] || left[2] != left[0] {
		d.t.Errorf("%s leaves by the command line:\n%s\nby SQL:\n%s\nover HTTP:\n%s", cli, left[0], left[1], left[2])
	}
	if !strings.Contains(by[0], "@") || by[1] != "" || !strings.HasPrefix(by[2], "http:") {
		d.t.Errorf("%s: by whom: %q", cli, by)
	}
}

// TestP10_ADrainIsTheSameByEveryDoor: every door reports how many rows are left, to a role that may only read, and
// changes nothing.
func TestP10_ADrainIsTheSameByEveryDoor(t *testing.T) {
	t.Parallel()
	d := newDoors(t, testenv.Majors(t)[0])
	d.reset("")
	before := d.left()
	longer(time.Second, func(limit time.Duration, last bool) bool { // to count the rows
		stdout, _ := d.run(exitTimeout, "wait", "docs", "-o", "json", "--timeout", limit.String())
		if stdout == "" && !last {
			return false
		}
		got := decoded[map[string][]caughtup.Drained](t, stdout)["pipelines"][0]
		if got.Result != "not_in_time" || got.Rows != 5 {
			t.Errorf("by the command line: %+v", got)
		}
		return true
	})
	reader, _ := d.db.SQLRoles()
	conn, err := pgx.Connect(t.Context(), d.db.URL(reader))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var drained bool
	var rows int64
	if err := conn.QueryRow(t.Context(), `CALL embedsidecar.drain('docs', '1 s')`).Scan(&drained, &rows, nil); err != nil || drained || rows != 5 {
		t.Errorf("by SQL: %v, drained %t, %d left", err, drained, rows)
	}
	longer(time.Second, func(limit time.Duration, last bool) bool {
		said := d.ask(http.MethodGet, "/wait?pipeline=docs&timeout="+min(limit, time.Minute).String(), "")
		got := decoded[struct {
			CaughtUp  bool `json:"caught_up"`
			Why       string
			Pipelines []struct {
				Result string
				Left   int64 `json:"rows_left"`
			}
		}](t, said)
		if len(got.Pipelines) == 0 && !last {
			return false
		}
		if got.CaughtUp || len(got.Pipelines) != 1 || got.Pipelines[0].Result != "not_in_time" ||
			got.Pipelines[0].Left != 5 ||
			!strings.Contains(got.Why, "no sidecar runs") {
			t.Errorf("over HTTP: %s", said)
		}
		return true
	})
	if after := d.left(); after != before {
		t.Errorf("it left\n%s\nof\n%s", after, before)
	}
}

// TestP10_ProgressIsTheSameByEveryDoor: the progress of a backfill excludes scanned rows that are still pending.
func TestP10_ProgressIsTheSameByEveryDoor(t *testing.T) {
	t.Parallel()
	d := &doors{stage: newStage(t, 4)}
	d.once(0)
	d.db.MustExec(`CREATE SCHEMA saved; CREATE TABLE saved.ledger AS TABLE embedsidecar.ledger;
		CREATE TABLE saved.scan AS TABLE embedsidecar.scan`)
	d.serve()
	d.reset(`UPDATE embedsidecar.scan SET phase = 'rows', rows_seen = 60, rows_expected = 80, finished_at = NULL,
		started_at = now() - interval '55 s'`)
	const done, of = 55, 80 // five rows are pending
	seen := testenv.Value[string](d.db, "SELECT rows_done || ' of ' || rows_expected FROM embedsidecar.progress")
	if seen != "55 of 80" {
		t.Errorf("by SQL: %s", seen)
	}
	type status struct {
		Pipelines []struct {
			Seen     int64 `json:"scan_rows_seen"`
			Expected int64 `json:"scan_rows_expected"`
		}
	}
	stdout, _ := d.run(0, "status", "-o", "json")
	for door, said := range map[string]string{"the command line": stdout, "HTTP": d.ask(http.MethodGet, "/status", "")} {
		got := decoded[status](t, said)
		if len(got.Pipelines) != 1 || got.Pipelines[0].Seen != done || got.Pipelines[0].Expected != of {
			t.Errorf("by %s: %+v", door, got)
		}
	}
	if page := d.page("/pipelines"); !strings.Contains(page, "55 of about 80") {
		t.Errorf("on the dashboard:\n%s", page)
	}
}
