package dashboard_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// pages lists all pages, each with words that it must contain.
var pages = map[string][]string{
	"/": {
		"not decoded yet",
		`<svg class="chart`,
		"public.articles",
		"public.tickets: rows failed",
		"malformed_text",
	},
	"/pipelines":                 {"public.products", "rows failed", "up to date"},
	"/pipelines/public.tickets":  {"spam", "Over time", "tickets_embedding"},
	"/pipelines/public.articles": {"100.0%", "24 of 24 rows", "shared-words"},
	"/row":                       {"The story of one row"},
	"/row?pipeline=public.articles&key=1": {
		"The vector matches the row",
		"Nearest rows",
		"From the change to the vector",
	},
	"/row?pipeline=public.tickets&key=1007": {"The row is a dead letter", "malformed_text"},
	"/row?pipeline=public.tickets&key=1002": {"filter excludes the row"},
	"/search":                               {"Ask your own rows"},
	"/queue":                                {"malformed_text", "failed"},
	"/queue?state=failed&pipeline=public.tickets&class=data": {"1007", "1027"},
	"/queue?state=todo": {"Nothing"},
	"/queue?state=finished&pipeline=public.articles": {"embedded", "Clear the history", "docs-1"},
	"/queue?lanes=1&pipeline=public.tickets":         {"By priority", "Average age", "failed"},
	"/?by=pipeline":                                  {"Rows/s, public.articles", "Fresh, p99, public.tickets"},
	"/errors":                                        {"data malformed_text", "public.tickets"},
	"/dead-letters?pipeline=public.tickets":          {"1007", "Export NDJSON"},
	"/system":                                        {"Checkpoint", "WAL kept for it", "docs-1", "streaming"},
	"/models":                                        {"shared-words", "WordPiece"},
	"/checks":                                        {"max_slot_wal_keep_size", "1 remark"},
	"/audit":                                         {">scan<"},
	"/config":                                        {"workers.batch_rows", "default"},
	"/help":                                          {"What states mean", "slot lost", `href="/help/search"`},
	"/help/search":                                   {"Several pipelines", `id="several-pipelines"`, "All pages"},
}

// within matches inline styles and scripts, which the policy forbids.
var within = regexp.MustCompile(`(?i)\sstyle=|<style|<script>|\son[a-z]+=|javascript:`)

// All pages, on one database, with the worker's role, which has no other rights.
func TestPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	at, _ := r.serve(r.run, options{texts: true})
	b := r.signIn(at, "ada")
	t.Run("are read without a script", func(t *testing.T) { b.reads(t) })
	t.Run("hide texts of rows", func(t *testing.T) { r.texts(t, at) })
	t.Run("follow what happens", func(t *testing.T) { r.events(t, b) })
	t.Run("are for those who signed in", func(t *testing.T) { r.sessions(t, at) })
	t.Run("export dead letters", func(t *testing.T) { r.exports(t, b) })
}

// reads checks that every page has its content, no text of a row, and nothing that the policy forbids.
func (b *browser) reads(t *testing.T) {
	t.Helper()
	for path, want := range pages {
		page := b.becomes(t, path, want...) // rows are embedded before the sidecar reports that it streams
		if found := within.FindString(page); found != "" {
			t.Errorf("%s holds %q", path, found)
		}
		for _, text := range []string{"Open the settings", "cannot sign in since", "Made to last"} {
			if strings.Contains(page, text) {
				t.Errorf("%s shows the text of a row: %q", path, text)
			}
		}
	}
	found := b.post(http.StatusOK, "/search", "pipeline", "public.articles", "q", "password forgotten")
	for _, want := range []string{
		"SELECT * FROM embedsidecar.search(&#39;public.articles&#39;, &#39;password forgotten&#39;, 10);", "import psycopg", "curl -H",
		"ORDER BY", `key=1&amp;pipeline=public.articles`,
	} {
		if !strings.Contains(found, want) {
			t.Errorf("a search does not show %q:\n%s", want, found)
		}
	}
	both := b.post(http.StatusOK, "/search", "pipeline", "public.articles", "also", "public.products", "also",
		"public.articles", "q", "password forgotten trousers", "k", "50")
	for _, want := range []string{
		"search_across(ARRAY[&#39;public.articles&#39;, &#39;public.products&#39;]", "key=1&amp;pipeline=public.articles",
		"key=SKU-001&amp;pipeline=public.products", `&#34;pipelines&#34;:`,
	} {
		if !strings.Contains(both, want) {
			t.Errorf("a search of two pipelines does not show %q:\n%s", want, both)
		}
	}
	b.post(http.StatusNotFound, "/search", "q", "x", "pipeline", "public.articles", "also", "nothing")
	b.post(http.StatusNotFound, "/search", "q", "x", "pipeline", "nothing")
	b.post(http.StatusBadRequest, "/search", "q", strings.Repeat("x", mostSent))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.at+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	page, header := b.send(http.StatusOK, req)
	if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") || header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers of a page: %v", header)
	}
	for _, asset := range regexp.MustCompile(`(?:href|src)="(/assets/[^"]+)"`).FindAllStringSubmatch(page, -1) {
		b.get(http.StatusOK, asset[1])
	}
	for path, status := range map[string]int{
		"/nowhere": http.StatusNotFound, "/pipelines/nothing": http.StatusNotFound,
		"/row?pipeline=public.articles&key=4711":         http.StatusNotFound,
		"/row?pipeline=public.articles&key=no%27--":      http.StatusNotFound,
		"/row?pipeline=nothing&key=1":                    http.StatusNotFound,
		"/queue?state=broken":                            http.StatusBadRequest,
		"/queue?older=soon":                              http.StatusBadRequest,
		"/queue?after=first":                             http.StatusBadRequest,
		"/audit?after=first":                             http.StatusBadRequest,
		"/dead-letters/export?older=soon":                http.StatusBadRequest,
		"/audit?pipeline=%22%3E%3Cscript%3E":             http.StatusNotFound,
		"/pipelines/%3Cscript%3Ealert(1)%3C%2Fscript%3E": http.StatusNotFound,
	} {
		if page := b.get(status, path); strings.Contains(page, "<script>") {
			t.Errorf("%s: what was asked for is in the page as it is:\n%s", path, page)
		}
	}
}

const mostSent = 9000

// texts checks that texts of rows are shown only on request, to users that may see them, if the configuration allows
// it.
func (r *rig) texts(t *testing.T, at string) {
	t.Helper()
	const row, text = "/row?pipeline=public.articles&key=1&text=1", "Open the settings"
	search := func(b *browser, status int) string {
		return b.post(status, "/search", "pipeline", "public.articles", "q", "password", "text", "1")
	}
	b := r.signIn(at, "olga")
	for _, page := range []string{b.get(http.StatusOK, row), search(b, http.StatusOK)} {
		if !strings.Contains(page, text) {
			t.Errorf("an operator who asks does not see the text:\n%s", page)
		}
	}
	viewer := r.signIn(at, "vera")
	if strings.Contains(viewer.get(http.StatusOK, row), text) {
		t.Error("a viewer sees the text of a row")
	}
	search(viewer, http.StatusForbidden) // the neighbors of a text reveal something about texts
	viewer.get(http.StatusForbidden, "/config")
	closed, _ := r.serve(r.run, options{})
	b = r.signIn(closed, "ada")
	for _, page := range []string{b.get(http.StatusOK, row), search(b, http.StatusOK)} {
		if strings.Contains(page, text) {
			t.Errorf("a text shows where none may be shown:\n%s", page)
		}
	}
}

// deeds are actions as submitted by forms, each with its expected effect in the database.
func deeds() []struct {
	form []string
	sql  string
	want int64
} {
	type list = []string
	const failed = "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'"
	audited := func(action string) string {
		return "SELECT count(*) FROM embedsidecar.audit_log WHERE action = '" + action + "' AND said_by LIKE '%olga%'"
	}
	return []struct {
		form []string
		sql  string
		want int64
	}{
		{list{"do", "pause", "pipeline", "public.articles"}, "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled", 1},
		{list{"do", "resume", "pipeline", "public.articles"}, "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled", 0},
		{list{"do", "pause", "typed", "pause all", "expected", "0"}, "SELECT count(*) FROM embedsidecar.installation WHERE enabled", 0},
		{list{"do", "priority", "pipeline", "public.products", "priority", "urgent"}, "SELECT count(*) FROM embedsidecar.pipeline WHERE lane = 3", 1},
		{list{"do", "resume", "pipeline", "public.products", "for", "2h"}, "SELECT count(*) FROM embedsidecar.pipeline WHERE open_until > now() + interval '110 min'", 1},
		{list{"do", "resume", "pipeline", "public.products", "for", "0s"}, "SELECT count(*) FROM embedsidecar.pipeline WHERE open_until IS NOT NULL", 0},
		{list{"do", "backfill", "pipeline", "public.products"}, audited("backfill"), 1},
		{list{"do", "requeue", "pipeline", "public.articles", "key", "1", "key", "2"}, "SELECT count(*) FROM embedsidecar.task WHERE row_key IN ('1', '2')", 2},
		{list{"do", "prioritise", "pipeline", "public.articles", "key", "2", "priority", "urgent"}, "SELECT count(*) FROM embedsidecar.task WHERE lane = 3", 1},
		{list{"do", "prioritise", "pipeline", "public.articles", "priority", "low", "typed", "2", "expected", "2"}, "SELECT count(*) FROM embedsidecar.task WHERE lane = 0 AND row_key IN ('1', '2')", 2},
		{list{"do", "cancel", "pipeline", "public.articles", "key", "1", "priority", "high"}, "SELECT count(*) FROM embedsidecar.task WHERE state = 'cancelled'", 1},
		{list{"do", "requeue", "pipeline", "public.articles", "typed", "1", "expected", "1"}, "SELECT count(*) FROM embedsidecar.task WHERE state = 'cancelled'", 0},
		{list{"do", "reembed", "pipeline", "public.products", "key", "SKU-001"}, audited("reembed"), 1},
		{list{"do", "discard", "pipeline", "public.tickets", "key", "1007", "typed", "1", "expected", "1"}, failed, 1},
		{list{"do", "retry", "pipeline", "public.tickets", "class", "data", "typed", "1", "expected", "1"}, failed, 0},
		{list{"do", "resume", "typed", "resume all", "expected", "0"}, "SELECT count(*) FROM embedsidecar.installation WHERE enabled", 1},
	}
}

// Each action of a page has its effect, for a role that may act but owns nothing, and the audit shows the user.
func TestActions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()() // so that changes stay as they are
	at, _ := r.serve(r.person, options{})
	b := r.signIn(at, "olga")
	t.Run("ask first", func(t *testing.T) { r.asks(t, b) })
	t.Run("are refused", func(t *testing.T) { r.refuses(t, at) })
	before := testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.audit_log")
	for _, d := range deeds() {
		page := b.post(http.StatusOK, "/act", append(d.form, "back", "/help")...)
		if !strings.Contains(page, "What states mean") || !strings.Contains(page, `role="status"`) {
			t.Errorf("%v: does not lead back with what was done:\n%s", d.form, page)
		}
		if got := testenv.Value[int64](r.db, d.sql); got != d.want {
			t.Errorf("%v: %s: %d, want %d\n%s", d.form, d.sql, got, d.want, page)
		}
	}
	if got := testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.audit_log") - before; got != int64(len(deeds())) {
		t.Errorf("the audit has %d entries, want one for each of %d actions", got, len(deeds()))
	}
	if page := b.get(http.StatusOK, "/audit"); !strings.Contains(page, "olga") {
		t.Errorf("the audit does not say who:\n%s", page)
	}
	const finished = "SELECT count(*) FROM embedsidecar.finished_tasks WHERE pipeline = 'public.articles'"
	rows := testenv.Value[int64](r.db, finished)
	b.post(http.StatusOK, "/act", "do", "clear-history", "pipeline", "public.articles", "typed", fmt.Sprint(rows),
		"expected", fmt.Sprint(rows))
	if left := testenv.Value[int64](r.db, finished); left != 0 || rows == 0 {
		t.Errorf("of %d finished tasks %d are left", rows, left)
	}
	r.turns(t, b)
}

// turns checks that the pages of the audit show each entry once.
func (r *rig) turns(t *testing.T, b *browser) {
	t.Helper()
	const entries = 2*100 + 1
	r.db.MustExec(`INSERT INTO embedsidecar.audit_log (action, said_by) SELECT 'pause', 'entry ' || i FROM generate_series(1, $1) AS i`,
		entries)
	seen, pages := map[string]int{}, 0
	for path := "/audit"; path != ""; pages++ {
		page := b.get(http.StatusOK, path)
		for _, name := range regexp.MustCompile(`entry \d+`).FindAllString(page, -1) {
			seen[name]++
		}
		path = ""
		if older := regexp.MustCompile(`href="([^"]+)">Older ones`).FindStringSubmatch(page); older != nil {
			path = html.UnescapeString(older[1])
		}
	}
	if len(seen) != entries || seen["entry 1"] != 1 || pages != 3 {
		t.Errorf("%d entries of %d on %d pages, the first of them %d times", len(seen), entries, pages, seen["entry 1"])
	}
}

// asks checks that an action on many rows shows their number and needs that number typed, and fails if there are more
// by then.
func (r *rig) asks(t *testing.T, b *browser) {
	t.Helper()
	failed := func() int64 {
		return testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'")
	}
	form := []string{"do", "discard", "pipeline", "public.tickets", "class", "data"}
	page := b.post(http.StatusOK, "/act", form...)
	if !strings.Contains(page, "Discard 2 rows?") || failed() != 2 {
		t.Fatalf("%d failed; asked was:\n%s", failed(), page)
	}
	for _, typed := range [][2]string{{"2", "1"}, {"2", ""}, {"1", "1"}, {"x", "2"}} { // number shown, number typed
		page := b.post(http.StatusOK, "/act", append(form, "expected", typed[0], "typed", typed[1])...)
		if !strings.Contains(page, `role="alert"`) || failed() != 2 {
			t.Errorf("told %s, typed %q: %d failed:\n%s", typed[0], typed[1], failed(), page)
		}
	}
	form[1] = "retry"
	b.post(http.StatusOK, "/act", append(form, "expected", "2", "typed", "2")...)
	if failed() != 0 {
		t.Errorf("%d failed after the number was typed", failed())
	}
	form[1] = "discard"
	if page := b.post(http.StatusOK, "/act", form...); !strings.Contains(page, "No row matches any more") {
		t.Errorf("nothing is left, and asked was:\n%s", page)
	}
	r.db.MustExec(`UPDATE embedsidecar.task SET state = 'failed', error_class = 'data', error_code = 'malformed_text', error_message = 'x'
		WHERE row_key IN ('1007', '1027')`)
}

// refuses checks that the server rejects actions whatever a browser sends: it changes nothing and writes no audit
// entry.
func (r *rig) refuses(t *testing.T, at string) {
	t.Helper()
	pause := []string{"do", "pause", "pipeline", "public.articles"}
	audited := func() int64 { return testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.audit_log") }
	before := audited()
	operator := r.signIn(at, "olga")
	r.signIn(at, "vera").post(http.StatusForbidden, "/act", pause...)
	r.signIn(at, "").post(http.StatusUnauthorized, "/act", pause...)

	other, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/act", strings.NewReader(
		url.Values{"do": {"pause"}, "pipeline": {"public.articles"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	other.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	other.Header.Set("Sec-Fetch-Site", "cross-site")
	operator.send(http.StatusForbidden, other)

	for _, wrong := range [][]string{
		{},
		{"do", "drop"},
		{"do", "cancel", "pipeline", "public.articles"},
		{"do", "discard"},
		{"do", "priority", "pipeline", "public.articles", "priority", "9"},
		{"do", "retry", "pipeline", "public.articles", "older", "soon"},
		{"do", "requeue", "pipeline", "public.articles", "key", strings.Repeat("x", 5000)},
		{"do", "requeue", "key", "1"},
		{"do", "resume", "pipeline", "public.articles", "for", "soon"},
		{"do", "resume", "pipeline", "public.articles", "for", "-1h"},
		{"do", "pause", "pipeline", "public.articles", "for", "1h"},
	} {
		operator.post(http.StatusBadRequest, "/act", wrong...)
	}
	operator.post(http.StatusNotFound, "/act", "do", "pause", "pipeline", "no' OR true --")
	readOnly, _ := r.serve(r.person, options{readOnly: true})
	closed := r.signIn(readOnly, "ada")
	closed.post(http.StatusForbidden, "/act", pause...)
	if page := closed.get(http.StatusOK, "/pipelines/public.articles"); strings.Contains(page, `name="do"`) ||
		!strings.Contains(page, "Read-only") {
		t.Errorf("a page on which nothing can be done offers it:\n%s", page)
	}
	// The database rejects it, too: the worker's role may not pause.
	asWorker, _ := r.serve(r.run, options{})
	worker := r.signIn(asWorker, "olga")
	if page := worker.post(http.StatusForbidden, "/act", pause...); !strings.Contains(page, "embedsidecar_operator") {
		t.Errorf("the way out is missing:\n%s", page)
	}
	if n := audited() - before; n != 0 {
		t.Errorf("what was refused left %d entries in the audit", n)
	}
}

func (r *rig) sessions(t *testing.T, at string) {
	t.Helper()
	stranger := r.signIn(at, "")
	if page := stranger.get(http.StatusOK, "/queue"); !strings.Contains(page, `name="token"`) {
		t.Errorf("a stranger sees:\n%s", page)
	}
	stranger.post(http.StatusUnauthorized, "/login", "token", "guess")
	r.token("otto", "operator")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		answer, err := stranger.http.PostForm(at+"/login", url.Values{"token": {"otto"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK, answer.Status
	})
	b, left := r.signIn(at, "otto"), r.signIn(at, "vera")
	left.post(http.StatusOK, "/logout")
	if page := left.get(http.StatusOK, "/"); !strings.Contains(page, `name="token"`) {
		t.Errorf("after signing out:\n%s", page)
	}
	b.get(http.StatusOK, "/")
	known, err := os.ReadFile(r.tokens)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, _ := strings.Cut(string(known), "otto:")
	if err := os.WriteFile(r.tokens, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		page := b.get(http.StatusOK, "/help")
		return strings.Contains(page, `name="token"`), "the token is taken back, and its session goes on"
	})
}

// events checks that a page gets a change within seconds, without polling.
func (r *rig) events(t *testing.T, b *browser) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.at+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	paused := func() bool {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return strings.Contains(data, `"state":"paused"`)
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
		return false
	}
	if paused() {
		t.Error("something is paused before anybody did so")
	}
	r.db.MustExec("UPDATE embedsidecar.pipeline SET enabled = false WHERE name = 'public.tickets'")
	seen := paused()
	for !seen {
		seen = paused()
	}
}

func (r *rig) exports(t *testing.T, b *browser) {
	t.Helper()
	r.db.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, seq, xid, committed_at, first_lsn, last_lsn, error_class, error_code, error_message)
		SELECT pipeline_id, 'x' || i, 'failed', 1, i, '3', now(), '0/1', '0/1', 'data', 'too_long', 'x' FROM embedsidecar.pipeline, generate_series(1, 2500) AS i WHERE name = 'public.tickets'`)
	body := b.get(http.StatusOK, "/dead-letters/export?pipeline=public.tickets&class=data&code=too_long")
	seen := map[string]bool{}
	for line := range strings.Lines(body) {
		var task struct{ Key, State string }
		if err := json.Unmarshal([]byte(line), &task); err != nil || task.State != "failed" {
			t.Fatalf("%v: %s", err, line)
		}
		seen[task.Key] = true
	}
	if len(seen) != 2500 {
		t.Errorf("%d rows, want 2500", len(seen))
	}
}

// Without a setup, or without the server, pages say so and what to do.
func TestPages_SayWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, db: testenv.DB(t, testenv.Empty())}
	r.token("ada", "admin")
	at, _ := r.serve(testenv.Owner, options{})
	b := r.signIn(at, "")
	b.post(http.StatusServiceUnavailable, "/login", "token", "ada")
	for _, path := range []string{"/", "/queue", "/row", "/audit"} {
		if page := b.get(http.StatusServiceUnavailable, path); !strings.Contains(page, "Nothing is set up yet") ||
			!strings.Contains(page, "embedsidecar init") {
			t.Errorf("%s, with nothing set up:\n%s", path, page)
		}
	}
	b.get(http.StatusOK, "/help")
}
