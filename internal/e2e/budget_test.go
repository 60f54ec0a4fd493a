//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
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
		r.disconnected() // a sidecar that seems to run still holds what it has written down
		change()
		r.url = r.login(testenv.Owner) // who may take over what is configured
		file := r.config([]pipeline.Spec{spec})
		c := r.start(nil, "run", "--config", file, "--set", "lease=1h", "--set", "workers.direct=false")
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
			!strings.Contains(out, "continues when the budget is raised") {
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

// TestBudget_PaysForWhoAsksModels: the budget of a model pays for vectors and scores that are asked for without a
// pipeline. Once it is spent they are refused, with when it goes on; searches are answered, and counted.
func TestBudget_PaysForWhoAsksModels(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "", func(t *testing.T, major int) {
		t.Helper()
		far := &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey}
		cross := &remotetest.Server{Dialect: "tei-rerank"}
		servers := [2]*httptest.Server{httptest.NewServer(far), httptest.NewServer(cross)}
		for _, s := range servers {
			t.Cleanup(s.Close)
		}
		r := newRemoteRigOn(t, testenv.DB(t, testenv.Major(major), testenv.Empty()), far.Base(servers[0].URL),
			`, budget: {tokens_per_day: 40}}`+"\n  - {name: cross, dialect: tei-rerank, budget: {tokens: 40}, url: "+servers[1].URL,
			"}\nsearch: {rerank: cross")
		r.db.MustExec(`INSERT INTO public.docs VALUES (1, 'boats')`)
		c := r.start(r.remote(), "run", "--no-init", "--http", "127.0.0.1:0", "--tokens-file", r.tokens())
		url := c.address()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return r.count(`SELECT count(*) FROM public.docs_embedding`) == 1, c.tail()
		})
		ask := func(path string, body map[string]any) (status int, again bool, said string) {
			t.Helper()
			data, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			answer, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, resp.Header.Get("Retry-After") != "", string(answer)
		}
		for _, model := range []struct {
			name, path string
			server     *remotetest.Server
			body       func(i int) map[string]any
			again      bool
		}{
			{"far", "/v1/embeddings", far, func(i int) map[string]any {
				return map[string]any{"model": "far", "input": fmt.Sprintf("one boat and %d harbours", i)}
			}, true},
			{"cross", "/rerank", cross, func(i int) map[string]any {
				return map[string]any{"query": "boats", "texts": []string{fmt.Sprintf("one boat and %d harbours", i), "x"}}
			}, false},
		} {
			good := 0
			status, again, said := ask(model.path, model.body(0))
			for ; status == http.StatusOK && good < 40; good++ {
				status, again, said = ask(model.path, model.body(good+1))
			}
			calls := len(model.server.Calls())
			if good == 0 || status != http.StatusTooManyRequests || !strings.Contains(said, "budget_spent") ||
				again != model.again {
				t.Errorf("%s after %d: %d, Retry-After %t, %s\n%s", model.name, good, status, again, said, c.tail())
			}
			spent := r.count(`SELECT tokens FROM embedsidecar.spending WHERE kind = 'model' AND name = $1`, model.name)
			if spent < 40 || spent > 80 {
				t.Errorf("%d tokens of 40 are spent by %s", spent, model.name)
			}
			ask(model.path, model.body(-1))
			if now := len(model.server.Calls()); now != calls {
				t.Errorf("%s was asked %d times without a budget", model.name, now-calls)
			}
		}
		const spending = `SELECT sum(tokens)::bigint FROM embedsidecar.spending WHERE name = $1`
		before := [2]int{r.count(spending, "far"), r.count(spending, "cross")}
		status, _, said := ask("/v1/pipelines/docs/search",
			map[string]any{"text": "harbours in the evening", "k": 1, "rerank": 1})
		if status != http.StatusOK || !strings.Contains(said, `"1"`) {
			t.Errorf("a search: %d %s\n%s", status, said, c.tail())
		}
		if now := [2]int{r.count(spending, "far"), r.count(spending, "cross")}; now[0] <= before[0] || now[1] <= before[1] {
			t.Errorf("a search is not counted: %v, then %v", before, now)
		}
		c.terminate()
	})
}
