//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestScale_Pages: no page of a sidecar's dashboard takes 100 kB, whatever waits in how many pipelines:
// EMBEDSIDECAR_SCALE pipelines and EMBEDSIDECAR_TASKS tasks. It logs how long each takes, in the middle of
// EMBEDSIDECAR_TIMES.
func TestScale_Pages(t *testing.T) {
	t.Parallel()
	n := fromEnvironment(t, "EMBEDSIDECAR_SCALE", 40)
	tasks := fromEnvironment(t, "EMBEDSIDECAR_TASKS", 100*n)
	times := fromEnvironment(t, "EMBEDSIDECAR_TIMES", 1)
	w := newVillage(t, n)
	at, tokens := testenv.Nowhere(t), filepath.Join(w.dir, "tokens")
	told := strings.Fields(w.says(0, "token", "create", "ops", "--role", "admin", "--tokens-file", tokens))
	c := w.startPlain(w.environ(), "run", "--admin-listen", at, "--tokens-file", tokens)
	w.settled(c)
	w.exec("village", "SELECT embedsidecar.pause()")
	w.fill(tasks)

	http1 := &http.Client{Timeout: waitTimeout}
	get := func(path string) (status int, page string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+told[len(told)-1])
		req.Header.Set("Accept", "text/html")
		resp, err := http1.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		said, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(said)
	}
	name := ""
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		status, page := get("/api/v1/pipelines")
		if found := regexp.MustCompile(`"name":\s*"([^"]+)"`).FindStringSubmatch(page); found != nil {
			name = url.QueryEscape(found[1])
		}
		return name != "", fmt.Sprint(status, " ", page)
	})
	for _, path := range []string{
		"/", "/?window=7d&by=pipeline", "/pipelines", "/pipelines?page=2", "/pipelines/" + name, "/queue",
		"/queue?state=failed", "/queue?state=retrying", "/queue?state=finished", "/queue?pipeline=" + name,
		"/queue?class=data&code=reason_1",
		"/queue?code=none", "/queue?lanes=1", "/queue?lanes=1&pipeline=" + name, "/errors", "/errors?pipeline=" + name,
		"/dead-letters", "/dead-letters?pipeline=" + name, "/search", "/row?pipeline=" + name + "&key=1", "/system",
		"/models", "/checks", "/config", "/audit", "/audit?pipeline=" + name, "/help", "/help/commands", "/nowhere",
	} {
		var took []time.Duration
		size := 0
		w.forget()
		for range times {
			began := time.Now()
			status, page := get(path)
			took, size = append(took, time.Since(began)), len(page)
			if status != http.StatusOK && path != "/nowhere" || !strings.Contains(page, "</html>") {
				t.Fatalf("%s: %d %.2000s\n%s", path, status, page, c.tail())
			}
		}
		slices.Sort(took)
		t.Logf("%-45s %6d bytes, %4d ms in the middle, %d at most", path, size, took[len(took)/2].Milliseconds(),
			took[len(took)-1].Milliseconds())
		if took[len(took)/2] > 200*time.Millisecond {
			t.Logf("%s: what took longest: %s", path, w.longest())
		}
		if size > 100_000 {
			t.Errorf("%s has %d bytes, want 100,000 at most", path, size)
		}
		if views, _ := w.counted("CREATE TEMPORARY VIEW"); views > 0 {
			t.Errorf("%s asks by %d views what texts of plain columns read", path, views)
		}
	}
	c.terminate()
}

// longest tells which statements took longest since forget: of one call, with its planning.
func (w *village) longest() (told string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.server.URL("postgres", ""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close(w.t.Context()) }()
	if err := conn.QueryRow(w.t.Context(), `SELECT string_agg(format('%s ms, planned in %s ms: %s', round(s.max_exec_time),
		round(s.max_plan_time), left(s.query, 200)), E'\n') FROM (SELECT * FROM pg_stat_statements
		ORDER BY max_exec_time + max_plan_time DESC LIMIT 3) AS s`).Scan(&told); err != nil {
		w.t.Fatal(err)
	}
	return told
}

// fill has tasks wait in all pipelines: one in ten is a dead letter, and one in a hundred is to be tried again, each
// for one of a dozen reasons.
func (w *village) fill(tasks int) {
	w.t.Helper()
	w.exec("village", fmt.Sprintf(`INSERT INTO embedsidecar.task (pipeline_id, row_key, state, lane, xid, first_lsn,
		last_lsn, committed_at, due_at, attempt, error_class, error_code, error_message)
		SELECT p.ids[1 + i %% p.n], (1000 + i)::text, s.state, i / p.n %% 4, '3', '0/1', '0/1',
		       now() - i * interval '1 ms', CASE s.state WHEN 'retrying' THEN now() + interval '1 h' END, 1,
		       CASE WHEN s.state <> 'todo' THEN 'data' END, CASE WHEN s.state <> 'todo' THEN 'reason_' || i / 10 %% 12 END,
		       CASE WHEN s.state <> 'todo' THEN 'byte ' || i || ' is no part of any token ' || repeat('of the text ', 12) END
		FROM   generate_series(1, %d) AS i,
		       (SELECT array_agg(pipeline_id) AS ids, count(*)::int AS n FROM embedsidecar.pipeline) AS p,
		       LATERAL (SELECT (CASE WHEN i / p.n %% 10 = 0 THEN 'failed' WHEN i / p.n %% 100 = 1 THEN 'retrying'
		           ELSE 'todo' END)::embedsidecar.task_state) AS s (state)`, tasks), `VACUUM ANALYZE embedsidecar.task`,
		"CHECKPOINT") // or who looks first would write for who has written
}
