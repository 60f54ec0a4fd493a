package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// becomes fetches a page until it contains all wanted words, and returns it.
func (b *browser) becomes(t *testing.T, path string, want ...string) (page string) {
	t.Helper()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		page = b.get(http.StatusOK, path)
		for _, w := range want {
			if !strings.Contains(page, w) {
				return false, path + ": " + w + " is missing in\n" + page
			}
		}
		return true, ""
	})
	return page
}

// lacks checks that a page contains none of the words.
func lacks(t *testing.T, page string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(page, w) {
			t.Errorf("%q is in\n%s", w, page)
		}
	}
}

// Retried rows have a column, and count as a problem.
func TestPages_RowsRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.retry = time.Hour
	r.begin()
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "ada")
	page := b.becomes(t, "/", "public.tickets: rows fail and are retried", "2 rows failed and will be retried",
		"malformed_text", `<section class="hero warn"`, `state=retrying">2</a>`)
	lacks(t, page, "All is well")
	b.becomes(t, "/pipelines/public.tickets", "Rows fail and are retried", `<section class="hero warn"`)
	lacks(t, b.becomes(t, "/errors", "malformed_text", ">Retry…<"), ">Discard…<")
	story := b.becomes(t, "/row?pipeline=public.tickets&key=1007", "embedsidecar explain public.tickets 1007 --text",
		"http.admin.show_row_text")
	lacks(t, story, "(hash )")
}

// A plugin that is down for a sidecar is shown, even if it works in the dashboard's process.
func TestPages_PluginDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "ada")
	r.down.Store(true)
	r.db.MustExec("INSERT INTO articles VALUES (100, 'A new one', 'with a text of its own')")
	b.becomes(t, "/models", "plugin down in its sidecar", "nobody answers")
	b.becomes(t, "/errors", "Stopped pipelines", "plugin down")
}

// A pipeline that does not work is shown as a problem, even if none of its rows fail.
func TestPages_Misconfigured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.MustExec("DELETE FROM tickets WHERE message LIKE '%" + poison + "%'")
	r.work()
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "ada")
	b.becomes(t, "/errors", "No errors")
	r.db.MustExec("ALTER TABLE articles DROP COLUMN body")
	page := b.becomes(t, "/errors", "Stopped pipelines", "public.articles", "misconfigured", "No row fails")
	lacks(t, page, "No errors")
	b.becomes(t, "/", "public.articles: misconfigured", "No row fails.")
}

// Dead letters can be discarded wherever they can be retried.
func TestPages_Discard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	at, _ := r.serve(r.person, options{})
	b := r.signIn(at, "olga")
	b.becomes(t, "/errors", ">Retry…<", ">Discard…<", "Fix the row or the cause")
	b.becomes(t, "/dead-letters", ">Retry all…<", ">Discard those of public.tickets…<", "Fix the row or the cause")
	b.becomes(t, "/", "fix the cause, then run embedsidecar tasks retry public.tickets, or give up on them with embedsidecar tasks discard")
}

// A new sidecar needs a moment to take its slot: repeated reads do not wait for that, and do not report it as a
// problem.
func TestPages_ASidecarBegins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()()
	slot := func() report.Slot {
		t.Helper()
		state, err := observe.Read(t.Context(), r.pool(r.db.URL(r.run), 2), &observe.Memory{}, strings.ToLower)
		if err != nil {
			t.Fatal(err)
		}
		return state.Slots[0]
	}
	r.db.MustExec(`INSERT INTO embedsidecar.worker (instance, version, slot_name, started_at)
		VALUES ('docs-2', '1.0.0', $1, now() + interval '1 h')`, r.slot)
	if s := slot(); s.Status != "ok" || s.Reason != "docs-2 is about to stream it" {
		t.Errorf("at first: %s, %s", s.Status, s.Reason)
	}
	r.db.MustExec(`UPDATE embedsidecar.worker SET started_at = now() - interval '6 s'`)
	if s := slot(); s.Status != "error" || !strings.HasPrefix(s.Reason, "docs-2 runs, but does not read slot") {
		t.Errorf("later: %s, %s", s.Status, s.Reason)
	}
}
