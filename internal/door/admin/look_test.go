package admin_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// history writes measurements, and checks each pipeline's history and that of all together.
func (f *fixture) history() {
	f.t.Helper()
	f.MustExec(`INSERT INTO embedsidecar.measure
		SELECT coalesce((SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.name = i.name), 0), 10, 0,
			now() - interval '1 hour', i.n, 0, 0, i.n, 0, 0, 2, '{}'
		FROM (VALUES ('public.docs', 10), ('public.notes', 20), ('', 37)) AS i (name, n)`)
	for query, want := range map[string]int64{"?window=24h": 37, "?window=7d&pipeline=docs&pipeline=notes": 30, "": 0} {
		past := gets[report.Past](f, "viewer", "/api/v1/history"+query)
		if past.Total.Embedded != want {
			f.t.Errorf("%s: %+v, want %d rows", query, past.Total, want)
		}
	}
	if past := gets[report.Past](f, "scoped", "/api/v1/history?window=24h"); past.Total.Embedded != 10 {
		f.t.Errorf("whoever sees one pipeline: %+v", past.Total)
	}
	f.refused(http.StatusUnprocessableEntity, "usage", "viewer", http.MethodGet, "/api/v1/history?window=2h", "")
	f.refused(http.StatusNotFound, "pipeline_not_found", "scoped", http.MethodGet, "/api/v1/history?pipeline=notes", "")
}

// TestLook_WhatIsThere: every route that reads returns the content of the database that the caller may see, without
// texts and passwords.
func TestLook_WhatIsThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	for _, path := range []string{
		"/status", "/checks", "/pipelines", "/pipelines/docs", "/pipelines/docs/rows/1", "/tasks", "/errors",
		"/audit", "/workers", "/plugins", "/config", "/session", "/wait?timeout=1ms",
		"/history?window=7d",
	} {
		a := f.ask("admin", http.MethodGet, "/api/v1"+path, "")
		if a.status != http.StatusOK || strings.Contains(a.body, "CANARY") || strings.Contains(a.body, "hunter2") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		// A token for some pipelines sees nothing of others.
		if a := f.ask("scoped", http.MethodGet, "/api/v1"+path, ""); strings.Contains(a.body, "notes") {
			t.Errorf("%s, for some pipelines: %s", path, a.body)
		}
	}
	for _, name := range []string{"docs", "notes"} {
		f.ask("operator", http.MethodPost, "/api/v1/pipelines/"+name+"/pause", "")
	}
	for _, path := range []string{"/status", "/pipelines/docs", "/pipelines/docs/rows/1", "/pipelines/docs/model"} {
		if a := f.ask("scoped", http.MethodGet, "/api/v1"+path, ""); a.status != http.StatusOK || strings.Contains(a.body, "notes") {
			t.Errorf("%s, for some pipelines, while others are paused, too: %d %s", path, a.status, a.body)
		}
	}
	for _, name := range []string{"docs", "notes"} {
		f.ask("operator", http.MethodPost, "/api/v1/pipelines/"+name+"/resume", "")
	}
	f.reset()
	now := gets[admin.Status](f, "viewer", "/api/v1/status")
	if len(now.Pipelines) != 2 || now.Pipelines[0].Failed != 3 || now.Pipelines[0].Cancelled != 1 || len(now.Slots) != 1 ||
		now.Program.Instance != "one" {
		t.Errorf("status: %+v", now)
	}
	for path, want := range map[string]string{
		"/tasks?limit=3":                       "public.docs:1 public.docs:2 public.docs:3 +",
		"/tasks?limit=3&cursor=CURSOR":         "public.docs:4 public.notes:1 public.notes:2 +",
		"/tasks?pipeline=docs&state=cancelled": "public.docs:4",
		"/tasks?pipeline=notes&key=2&key=4":    "public.notes:2 public.notes:4",
		"/tasks?older_than=2h":                 "",
		"/tasks?state=failed&code=c1&limit=2":  "public.docs:1 public.docs:3 +",
		"/tasks?class=x%27y":                   "",
	} {
		page := gets[admin.TaskPage](f, "viewer", "/api/v1"+strings.ReplaceAll(path, "CURSOR",
			gets[admin.TaskPage](f, "viewer", "/api/v1/tasks?limit=3").Next))
		var got []string
		for _, task := range page.Tasks {
			got = append(got, task.Pipeline+":"+task.Key)
		}
		if page.Next != "" {
			got = append(got, "+")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	f.pagesOfTheAudit()
	f.history()
	for path, reason := range map[string]string{"/checks": "scope", "/plugins": "scope", "/config": "role"} {
		f.refused(http.StatusForbidden, reason, "scoped", http.MethodGet, "/api/v1"+path, "")
	}
	f.refused(http.StatusNotFound, "row_not_found", "viewer", http.MethodGet, "/api/v1/pipelines/docs/rows/99", "")
	f.refused(http.StatusNotFound, "pipeline_not_found", "scoped", http.MethodGet, "/api/v1/pipelines/notes/rows/1", "")
	if n := f.checks.Load(); n != 1 {
		t.Errorf("all was checked %d times, want once for those who ask together", n)
	}
	a := f.ask("admin", http.MethodPost, "/api/v1/plugins/fake/reload", "")
	if !strings.Contains(a.body, "reloaded by http:admin@") {
		t.Errorf("reload: %d %s", a.status, a.body)
	}
	// Without a timeout, the answer is the current state.
	for _, path := range []string{"/wait?timeout=0s", "/wait?pipeline=docs&pipeline=notes&timeout=0s"} {
		if a := f.ask("viewer", http.MethodGet, "/api/v1"+path, ""); a.status != http.StatusOK || !strings.Contains(a.body, "left") ||
			!strings.Contains(a.body, `"why":`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	f.refused(http.StatusNotFound, "plugin_not_found", "admin", http.MethodPost, "/api/v1/plugins/none/reload", "")
}

// pagesOfTheAudit checks that pages of the audit have each entry once, with and without a filter.
func (f *fixture) pagesOfTheAudit() {
	f.t.Helper()
	f.MustExec(`INSERT INTO embedsidecar.audit_log (action, pipeline) SELECT 'pause', CASE i % 2 WHEN 0 THEN 'public.docs' ELSE 'public.notes' END
		FROM generate_series(1, 7) AS i`)
	for filter, want := range map[string]int{"": 7, "&pipeline=docs": 3} {
		var ids []int64
		for path, pages := "/api/v1/audit?limit=2"+filter, 0; path != ""; pages++ {
			page := gets[admin.AuditPage](f, "viewer", path)
			for _, a := range page.Actions {
				ids = append(ids, a.ID)
			}
			if path = ""; page.Next != "" {
				path = "/api/v1/audit?limit=2" + filter + "&cursor=" + page.Next
			}
			if len(page.Actions) > 2 || pages > 7 {
				f.t.Fatalf("%q: page %d has %d entries", filter, pages, len(page.Actions))
			}
		}
		if !slices.IsSortedFunc(ids, func(a, b int64) int { return cmp.Compare(b, a) }) || len(slices.Compact(ids)) != want {
			f.t.Errorf("%q: %v, want %d entries, the newest first", filter, ids, want)
		}
	}
	f.refused(http.StatusBadRequest, "usage", "viewer", http.MethodGet, "/api/v1/audit?cursor=x", "")
	f.MustExec(`TRUNCATE embedsidecar.audit_log`)
}

// TestLook_TextOfARow: texts are shown only on request, to operators, if the configuration allows it.
func TestLook_TextOfARow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const path = "/api/v1/pipelines/docs/rows/1?text=true"
	f.refused(http.StatusForbidden, "row_text", "admin", http.MethodGet, path, "")
	f.config.Admin.ShowRowText = true
	f.listen()
	f.refused(http.StatusForbidden, "row_text", "viewer", http.MethodGet, path, "")
	if s := gets[explain.Story](f, "operator", path); s.Row.Text == nil || *s.Row.Text != "CANARY 1" {
		t.Errorf("%+v", s.Row)
	}
	if s := gets[explain.Story](f, "operator", strings.TrimSuffix(path, "?text=true")); s.Row.Text != nil {
		t.Errorf("nobody asked for %q", *s.Row.Text)
	}
}

// TestSession_OfABrowser: a cookie replaces the token until the session is ended or the token is revoked.
func TestSession_OfABrowser(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ *fixture, o *gate.Options) {
		o.Pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, known := gate.CallerOf(r.Context())
			_, _ = fmt.Fprintln(w, who.Name, known)
		})
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	send := func(method, path, token string) (status int, cookies []*http.Cookie, content string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, f.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Cookies(), string(page)
	}
	page := func() string {
		t.Helper()
		_, _, content := send(http.MethodGet, "/", "")
		return strings.TrimSpace(content)
	}
	begin := func() {
		t.Helper()
		status, cookie, _ := send(http.MethodPost, "/api/v1/session", f.tokens["operator"])
		if status != http.StatusOK || len(cookie) != 1 || !cookie[0].HttpOnly ||
			cookie[0].SameSite != http.SameSiteStrictMode ||
			strings.Contains(cookie[0].Value, f.tokens["operator"]) {
			t.Fatalf("%d %v", status, cookie)
		}
	}
	if got := page(); got != "false" {
		t.Errorf("before: %q", got)
	}
	begin()
	if got := page(); got != "operator true" {
		t.Errorf("in a session: %q", got)
	}
	if status, _, _ := send(http.MethodPost, "/api/v1/tasks/retry?x=1", ""); status != http.StatusUnprocessableEntity {
		t.Errorf("a cookie lets act: %d", status)
	}
	send(http.MethodDelete, "/api/v1/session", "")
	if got := page(); got != "false" {
		t.Errorf("after its end: %q", got)
	}
	begin()
	if _, err := gate.RevokeTokens(f.file, "operator"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, waitFor, func() (bool, string) { got := page(); return got == "false", got })
}

// TestEvents: a watching client gets changes until the token is revoked.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.base+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens["scoped"])
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	until := func(word string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), "notes") {
				t.Errorf("it tells of a pipeline of others: %s", lines.Text())
			}
			if strings.Contains(lines.Text(), word) {
				return
			}
		}
		t.Fatalf("the stream ended without %s: %v", word, lines.Err())
	}
	until("event: status")
	until(`"enabled":true`)
	f.MustExec(`SELECT embedsidecar.pause('public.docs')`)
	until(`"enabled":false`)
	if _, err := gate.RevokeTokens(f.file, "scoped"); err != nil {
		t.Fatal(err)
	}
	f.MustExec(`SELECT embedsidecar.resume('public.docs')`)
	for lines.Scan() { // until it is ended, within seconds
		continue
	}
}

// TestAct_WhileTheDatabaseIsAway: every request fails at once and changes nothing; when the database is back, the same
// request succeeds.
func TestAct_WhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	proxy := testenv.StartProxy(t, f.Server.Addr())
	f.pool = f.connectTo(f.URLVia(proxy.Addr(), f.role))
	f.listen()
	gets[admin.Status](f, "viewer", "/api/v1/status")
	before := f.state()
	proxy.Refuse()
	proxy.Cut()
	for _, path := range []string{
		"/tasks", "/lanes", "/workers", "/pipelines/docs/rows?key=1", "/wait?timeout=1s", "/wait?pipeline=docs",
	} {
		f.refused(http.StatusServiceUnavailable, "database", "viewer", http.MethodGet, "/api/v1"+path, "")
	}
	for _, c := range acts {
		f.refused(http.StatusServiceUnavailable, "database", "operator", http.MethodPost, "/api/v1"+c[0], c[1])
	}
	if after := f.state(); after != before {
		t.Errorf("it left\n%s\nof\n%s", after, before)
	}
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	gets[admin.TaskPage](f, "viewer", "/api/v1/tasks")
	for range 2 {
		f.ask("operator", http.MethodPost, "/api/v1/pipelines/docs/pause", "")
	}
	if n := testenv.Value[int](f.Database, `SELECT count(*) FROM embedsidecar.audit_log WHERE action = 'pause' AND result = 'paused'`); n != 1 {
		t.Errorf("%d entries in the audit, want 1", n)
	}
}

// TestAct_TwoOperatorsOnOneRow: concurrent actions on one row are serialized, the audit has all of them, and the row
// has the state that one of them left.
func TestAct_TwoOperatorsOnOneRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	var both sync.WaitGroup
	answers := make([]answer, 16)
	for i := range answers {
		path, body := "/tasks/cancel", `{"pipelines": ["docs"], "keys": ["1"]}`
		if i%2 == 1 {
			path = "/tasks/requeue"
		}
		both.Go(func() {
			answers[i] = f.ask([]string{"operator", "scoped", "admin"}[i%3], http.MethodPost, "/api/v1"+path, body)
		})
	}
	both.Wait()
	said := int64(0)
	for _, a := range answers {
		said += decoded[admin.Acted](f, "both", a).Outcomes[0].Rows
	}
	var kept struct{ entries, changed int64 }
	if err := f.Pool.QueryRow(t.Context(), `SELECT count(*), sum(changed) FROM embedsidecar.audit_log`).Scan(&kept.entries, &kept.changed); err != nil {
		t.Fatal(err)
	}
	if kept.entries != int64(len(answers)) || kept.changed != said || said < 1 {
		t.Errorf("the audit has %+v, and the answers say %d", kept, said)
	}
	if state := testenv.Value[string](f.Database, `SELECT string_agg(state::text, ' ') FROM embedsidecar.task WHERE row_key = '1'
		AND pipeline_id = (SELECT min(pipeline_id) FROM embedsidecar.task)`); state != "cancelled" && state != "todo" {
		t.Errorf("the row is %q", state)
	}
}

// TestStatus_NobodyWaitsForASlowRead: while the tables cannot be read, callers get the last state with its time at
// once, but not after a change.
func TestStatus_NobodyWaitsForASlowRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	before := gets[admin.Status](f, "viewer", "/api/v1/status")
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE embedsidecar.scan`); err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		return testenv.Value[int](f.Database, `SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
			WHERE NOT l.granted AND l.relation = 'embedsidecar.scan'::regclass AND d.datname = current_database()`)
	}
	for reads := false; !reads; { // the first of them get the cached state, the last one during the next read
		reads = waiting() > 0
		now := gets[admin.Status](f, "viewer", "/api/v1/status")
		if now.At != before.At || len(now.Pipelines) != len(before.Pipelines) {
			t.Fatalf("at %s: %+v, want what was known at %s", now.At, now, before.At)
		}
	}
	f.ask("operator", http.MethodPost, "/api/v1/pipelines/docs/pause", `{}`)
	after := make(chan answer)
	go func() { after <- f.ask("viewer", http.MethodGet, "/api/v1/status", "") }()
	testenv.Eventually(t, waitFor, func() (bool, string) { // the previous read, and the current one
		n := waiting()
		return n == 2, fmt.Sprintf("%d wait for the table", n)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := decoded[admin.Status](f, "status", <-after); now.Pipelines[0].State != health.Paused {
		t.Errorf("after it was paused: %+v", now.Pipelines[0])
	}
}
