package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// acts are requests for actions, with their bodies.
var acts = [][2]string{
	{"/pipelines/docs/pause", ""},
	{"/pipelines/docs/resume", `{"for": "2h"}`},
	{"/resume", ""},
	{"/pipelines/docs/backfill", ""},
	{"/pipelines/docs/priority", `{"priority": "high"}`},
	{"/pipelines/docs/reembed", `{"keys": ["1"]}`},
	{"/tasks/retry", `{"pipelines": ["docs"], "code": "c1"}`},
	{"/tasks/discard", `{"pipelines": ["docs"], "keys": ["2"]}`},
	{"/tasks/requeue", `{"pipelines": ["docs"]}`},
	{"/tasks/cancel", `{"pipelines": ["docs"], "keys": ["1", "3"]}`},
	{"/tasks/prioritise", `{"pipelines": ["docs"], "priority": "high"}`},
}

// acted returns the effects of an action: the queue, the switches, and its audit entry without user, time and number.
func (f *fixture) acted() string {
	f.t.Helper()
	return strings.Join(testenv.Values[string](f.Database, `
		SELECT concat_ws(' ', 'task', pipeline_id, row_key, state, lane, attempt, error_code, due_at IS NULL)
		FROM   embedsidecar.task
		UNION ALL SELECT concat_ws(' ', 'pipeline', pipeline_id, enabled, lane) FROM embedsidecar.pipeline
		UNION ALL SELECT concat_ws(' ', 'all', enabled) FROM embedsidecar.installation
		UNION ALL SELECT concat_ws(' ', 'scan', pipeline_id, phase, reason) FROM embedsidecar.scan
		UNION ALL SELECT concat_ws(' ', 'ledger', pipeline_id, row_key) FROM embedsidecar.ledger
		UNION ALL SELECT concat_ws(' ', 'audit', action, pipeline, arguments, result, changed) FROM embedsidecar.audit_log ORDER BY 1`), "\n")
}

// TestAct_ADryRunChangesNothing: every dry run reports what would be done, and leaves no audit entry. The tests of the
// command line cover the actions themselves.
func TestAct_ADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	before := f.state()
	for _, c := range acts {
		dry := `{"dry_run": true}`
		if c[1] != "" {
			dry = strings.Replace(c[1], "{", `{"dry_run": true, `, 1)
		}
		if a := f.ask("operator", http.MethodPost, "/api/v1"+c[0], dry); a.status != http.StatusOK || !strings.Contains(a.body, `"dry_run":true`) ||
			!strings.Contains(a.body, `"outcomes":[{`) {
			t.Errorf("%s %s: %d %s", c[0], dry, a.status, a.body)
		}
	}
	if after := f.state(); after != before {
		t.Errorf("it left\n%s\nof\n%s", after, before)
	}
	if a := f.ask("operator", http.MethodPost, "/api/v1/pipelines/docs/pause", ""); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	by := testenv.Values[string](f.Database, `SELECT said_by FROM embedsidecar.audit_log`)
	if fmt.Sprint(by) != "[http:operator@127.0.0.1]" {
		t.Errorf("said by %q", by)
	}
}

// TestAct_InPortions: the numbers of changed and remaining rows are exact, limits apply, a continued action keeps its
// audit entry, and a repeated request with the same key acts once.
func TestAct_InPortions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	retry := func(who, body string, header ...string) string {
		t.Helper()
		var told []string
		a := f.ask(who, http.MethodPost, "/api/v1/tasks/retry", body, header...)
		for _, o := range decoded[admin.Acted](f, body, a).Outcomes {
			left := "?"
			if o.Left != nil {
				left = fmt.Sprint(*o.Left)
			}
			told = append(told, fmt.Sprintf("%s %s %d/%s %d %v", o.Pipeline, o.Result, o.Rows, left, o.AuditID, o.Unknown))
		}
		return strings.Join(told, ", ")
	}
	next := testenv.Value[int64](f.Database, `SELECT coalesce(pg_sequence_last_value('embedsidecar.audit_log_audit_id_seq'), 0) + 1`)
	for _, c := range []struct{ who, body, want string }{
		{"operator", `{"dry_run": true}`, "public.docs would_be_retried 3/? 0 [], public.notes would_be_retried 3/? 0 []"},
		{"scoped", `{"dry_run": true}`, "public.docs would_be_retried 3/? 0 []"},
		{"operator", `{"limit": 2}`, fmt.Sprintf("public.docs retried 2/1 %d []", next)},
		{"operator", fmt.Sprintf(`{"pipelines": ["docs"], "continues": %d}`, next), fmt.Sprintf("public.docs retried 1/0 %d []", next)},
		{"operator", `{"pipelines": ["docs"], "keys": ["9"]}`, fmt.Sprintf("public.docs nothing_to_retry 0/0 %d [9]", next+1)},
	} {
		if got := retry(c.who, c.body); got != c.want {
			t.Errorf("%s: %s, want %s", c.body, got, c.want)
		}
	}
	if got, want := retry("operator", `{"limit": 2}`),
		fmt.Sprintf("public.docs nothing_to_retry 0/0 %d [], public.notes retried 2/1 %d []", next+2, next+3); got != want {
		t.Errorf("once more: %s, want %s", got, want)
	}
	if n := testenv.Value[int64](f.Database, `SELECT count(*) FROM embedsidecar.audit_log`); n != 4 {
		t.Errorf("%d entries in the audit, want 4", n)
	}
}

// TestAct_NotWhereNothingMayBeChanged: the read-only setting applies to admins, too, and a token for some pipelines
// acts only on these.
func TestAct_NotWhereNothingMayBeChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	before := f.state()
	for path, body := range map[string]string{
		"/pipelines/public.notes/pause": "", "/tasks/retry": `{"pipelines": ["docs", "notes"]}`,
		"/tasks/cancel": `{"pipelines": ["notes"], "keys": ["1"]}`, "/search": `{"pipeline": "notes", "text": "a"}`,
		"/tasks/prioritise": `{"pipelines": ["notes"], "priority": "high"}`, "/pipelines/notes/resume": `{"for": "1h"}`,
	} {
		f.refused(http.StatusNotFound, "pipeline_not_found", "scoped", http.MethodPost, "/api/v1"+path, body)
	}
	f.refused(http.StatusForbidden, "scope", "scoped", http.MethodPost, "/api/v1/pause", "")
	f.refused(http.StatusForbidden, "scope", "scoped", http.MethodGet, "/api/v1/workers", "")
	f.config.Admin.ReadOnly = true
	f.listen()
	for _, c := range acts {
		f.refused(http.StatusForbidden, "read_only", "admin", http.MethodPost, "/api/v1"+c[0], c[1])
	}
	for _, path := range []string{"/plugins/fake/reload", "/plugins/reload"} {
		f.refused(http.StatusForbidden, "read_only", "admin", http.MethodPost, "/api/v1"+path, "")
	}
	if f.state() != before {
		t.Error("something changed")
	}
	if a := f.ask("operator", http.MethodPost, "/api/v1/tasks/retry", `{"dry_run": true}`); a.status != http.StatusOK {
		t.Errorf("a dry run: %d %s", a.status, a.body)
	}
}

// TestAct_TooOften: a token that exceeds its rate does not block others.
func TestAct_TooOften(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(_ *fixture, o *gate.Options) { o.Limits.Rate = 1 })
	testenv.Eventually(t, waitFor, func() (bool, string) { // even on a slow machine, several arrive within a second
		var all sync.WaitGroup
		var refused atomic.Int32
		for range 10 {
			all.Go(func() {
				a := f.ask("viewer", http.MethodGet, "/api/v1/session", "")
				if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "1" {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		return refused.Load() > 0, "none is refused"
	})
	if a := f.ask("operator", http.MethodGet, "/api/v1/session", ""); a.status != http.StatusOK {
		t.Errorf("another one: %d %s", a.status, a.body)
	}
}

// TestAct_AsARoleThatMayNot: if the program's role may not act, the error has a hint; the least-privileged role can do
// what it may.
func TestAct_AsARoleThatMayNot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	_, operator := f.SQLRoles()
	f.MustExecSuper("REVOKE " + operator + " FROM " + f.role)
	f.refused(http.StatusForbidden, "database_role", "admin", http.MethodPost, "/api/v1/pause", "")
	a := f.ask("admin", http.MethodPost, "/api/v1/pause", "")
	if !strings.Contains(a.body, "member of embedsidecar_operator") || !strings.Contains(a.body, "ES0501") {
		t.Errorf("no way out: %s", a.body)
	}
	if a := f.ask("operator", http.MethodPost, "/api/v1/tasks/retry", "{}"); a.status != http.StatusOK {
		t.Errorf("retry: %d %s", a.status, a.body)
	}
}
