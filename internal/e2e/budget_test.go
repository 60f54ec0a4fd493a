//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// budgetPlaces are those at which a call of an embedder is written down and counted.
var budgetPlaces = []place{
	{name: "spend/held", hits: []int{1, 3}},
	{name: "spend/answered", hits: []int{1, 3}},
	{name: "spend/counted", hits: []int{1, 3}},
}

// TestBudget_SurvivesKillsAndRestarts: sidecars are killed wherever a call is written down and counted, and what is
// counted is never less than what the embedder was sent. A reload that lowers the budget ends it, one that raises it
// has the work go on.
func TestBudget_SurvivesKillsAndRestarts(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 0, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		const rows = 300
		db := testenv.DB(t, testenv.Major(major), testenv.Empty())
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
		spec := pipeline.Spec{
			Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoTable: "docs_embedding",
			Budget: pipeline.Budget{Tokens: 1_000_000},
		}
		r := newRig(t, db, spec)
		round := 0
		change := func() { // texts of three words
			round++
			db.MustExec(`INSERT INTO docs SELECT i, 'round '||$1::int||' text-'||i FROM generate_series(1, $2::int) AS i
				ON CONFLICT (id) DO UPDATE SET body = excluded.body`, round, rows)
		}
		never := func(when string) {
			t.Helper()
			counted := r.count(`SELECT (SELECT coalesce(sum(tokens), 0) FROM embedsidecar.spending)
				+ (SELECT coalesce(sum(most), 0) FROM embedsidecar.hold)::bigint`)
			if sent := 3 * r.sent(); counted < sent {
				t.Errorf("%s: %d tokens are counted, and %d were sent", when, counted, sent)
			}
		}
		for i := range budgetPlaces {
			for _, hit := range budgetPlaces[i].hits {
				change()
				r.dieAt(&budgetPlaces[i], hit)
				never(fmt.Sprintf("killed at %s, %d", budgetPlaces[i].name, hit))
			}
		}
		change()
		r.url = r.login(testenv.Owner) // who may take over what is configured
		file := r.config([]pipeline.Spec{spec})
		c := r.start(nil, "run", "--config", file, "--set", "lease=1s", "--set", "workers.direct=false")
		state := func(want string) {
			t.Helper()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				c.mustLive()
				seen := testenv.Value[string](db, `SELECT state || ': ' || reason FROM embedsidecar.status`)
				return strings.HasPrefix(seen, want+": "), seen
			})
		}
		state("up_to_date")
		never("after the kills")
		if n := r.count(`SELECT count(*) FROM embedsidecar.hold`); n != 0 {
			t.Errorf("%d calls are not counted though none is under way", n)
		}

		configure := func(tokens int) {
			t.Helper()
			spec.Budget.Tokens = tokens
			r.config([]pipeline.Spec{spec})
		}
		configure(1)
		state("budget_spent")
		sent := r.sent()
		change()
		if out := r.do(0, "status"); !strings.Contains(out, "is spent") ||
			!strings.Contains(out, "goes on when the budget is raised") {
			t.Errorf("status says\n%s", out)
		}
		if out := r.do(4, "wait", "--caught-up", "--timeout", "60s"); !strings.Contains(out, "is spent") {
			t.Errorf("wait says\n%s", out)
		}
		if out := r.do(0, "explain", "docs", "1"); !strings.Contains(out, "is spent") {
			t.Errorf("explain says\n%s", out)
		}
		if now := r.sent(); now != sent {
			t.Errorf("%d texts were embedded without a budget", now-sent)
		}
		configure(0) // none
		state("up_to_date")
		if now := r.sent(); now-sent != rows {
			t.Errorf("%d texts were embedded when it went on, want %d", now-sent, rows)
		}
		r.do(0, "verify")
	})
}
