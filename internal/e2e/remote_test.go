//go:build linux

package e2e

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

const providerKey = "sk-" + canary.Secret + "-fedcba9876543210"

// served starts a provider for a test, and returns its address.
func served(t *testing.T, provider *remotetest.Server) string {
	t.Helper()
	server := httptest.NewUnstartedServer(provider)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // some drop connections on purpose
	server.Start()
	t.Cleanup(server.Close)
	return provider.Base(server.URL)
}

// TestRemote_StormOfRefusals has a provider refuse, fail and vanish while rows are written: no task fails, no row is
// without the vector of its text, and the key is nowhere to be found.
func TestRemote_StormOfRefusals(t *testing.T) {
	t.Parallel()
	var storm atomic.Bool
	provider := &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey, Behave: func(w http.ResponseWriter,
		r *http.Request, c *remotetest.Call,
	) bool {
		if !storm.Load() {
			return false
		}
		switch c.N % 8 {
		case 0, 3, 6:
			return false
		case 1:
			remotetest.Send(429, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`,
				"Retry-After", "1")(w, r)
		case 2:
			remotetest.Drop(w, r)
		case 4:
			remotetest.Page(502)(w, r)
		case 5:
			remotetest.Send(503, ``)(w, r)
		default:
			remotetest.Send(429, `{"error":{"message":"slow down"}}`, "Retry-After-Ms", "30")(w, r)
		}
		return true
	}}
	const rows = 1500
	r := newRemoteRig(t, served(t, provider))
	r.db.MustExec(`INSERT INTO public.docs SELECT i, 'document ' || i FROM generate_series(1, $1::int) AS i`, rows)
	storm.Store(true)
	r.leisurely()
	c := r.run(r.remote()...)
	r.streaming(c)
	for round := range 10 {
		r.db.MustExec(`UPDATE public.docs SET body = body || ' again' WHERE id % 10 = $1::int`, round)
		r.db.MustExec(`DELETE FROM public.docs WHERE id = $1::int * 7 + 7`, round)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return len(provider.Calls()) > 50, fmt.Sprintf("%d requests so far", len(provider.Calls()))
	})
	storm.Store(false)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		left := r.count(`SELECT count(*) FROM embedsidecar.task`)
		return left == 0 && r.count(`SELECT count(*) FROM public.docs_embedding`) == rows-10, fmt.Sprintf("%d tasks left\n%s",
			left, c.tail())
	})
	if n := r.count(`SELECT count(*) FROM embedsidecar.history WHERE outcome IN ('failed', 'lost')`); n > 0 {
		t.Errorf("%d tasks failed though only the provider did", n)
	}
	r.provenRemote(provider)
	c.terminate()
	r.keyIsNowhere()
}

// TestRemote_TheCauseIsThatOfNow: what status says of a provider that fails follows what it answers, and is forgotten
// once it works. A command that meets a pause tells what the pause is for.
func TestRemote_TheCauseIsThatOfNow(t *testing.T) {
	t.Parallel()
	var answers atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	provider := &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey, Behave: func(w http.ResponseWriter,
		r *http.Request, _ *remotetest.Call,
	) bool {
		fails := answers.Load()
		if fails != nil {
			(*fails)(w, r)
		}
		return fails != nil
	}}
	r := newRemoteRig(t, served(t, provider))
	r.leisurely()
	c := r.run(r.remote()...)
	r.streaming(c)
	says := func(want, not string) time.Duration {
		t.Helper()
		began := time.Now()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			said := testenv.Value[string](r.db, `SELECT state || ': ' || reason FROM embedsidecar.status WHERE pipeline = 'docs'`)
			return strings.Contains(said, want) && !strings.Contains(said, not), said
		})
		return time.Since(began)
	}
	fail := func(answer func(http.ResponseWriter, *http.Request)) { answers.Store(&answer) }
	fail(remotetest.Send(http.StatusTooManyRequests, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`))
	r.db.MustExec(`INSERT INTO public.docs VALUES (1, 'boats and harbours')`)
	says("429 rate_limit_exceeded", "500")
	fail(remotetest.Send(http.StatusInternalServerError, `{"error":{"message":"oops","code":"internal"}}`))
	const soon = 50 * time.Second // many times the longest pause and a heartbeat
	if took := says("500", "429"); took > soon {
		t.Errorf("the new cause was told after %s", took)
	}
	fail(remotetest.Send(http.StatusTooManyRequests, `{"error":{"message":"pay","code":"insufficient_quota"}}`))
	says("429 insufficient_quota", "500")
	fail(remotetest.Send(http.StatusInternalServerError, `{"error":{"message":"oops","code":"internal"}}`))
	if took := says("500", "insufficient_quota"); took > soon {
		t.Errorf("after a quota the new cause was told after %s", took)
	}
	answers.Store(nil)
	if took := says("", "plugin_down"); took > soon {
		t.Errorf("that it works was told after %s", took)
	}

	fail(remotetest.Send(http.StatusTooManyRequests, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`,
		"Retry-After", "60"))
	e := r.start(r.remote(), "embed", "--model", "far", "boats and harbours")
	if status := e.wait(waitTimeout).ExitStatus(); status == 0 || !strings.Contains(e.tail(), "429 rate_limit_exceeded") {
		t.Errorf("embed ended with %d: %s", status, e.tail())
	}
	c.terminate()
	r.keyIsNowhere()
}

// remoteRig is a rig whose embedder is elsewhere.
type remoteRig struct{ *rig }

// TestRemote_OneEmbedAsksTwice: of a slow provider a text on the command line takes the probe, and the text. A sidecar,
// which stores what it gets, asks the texts of its self-test at once.
func TestRemote_OneEmbedAsksTwice(t *testing.T) {
	t.Parallel()
	const selfTest, text = 5, "boats and harbours"
	var holding atomic.Bool
	var held atomic.Int32
	all := make(chan struct{})
	provider := &remotetest.Server{Dialect: "openai", Dims: dims, Key: providerKey, Behave: func(_ http.ResponseWriter,
		r *http.Request, c *remotetest.Call,
	) bool {
		if holding.Load() && !strings.HasPrefix(c.Texts[0], "A lighthouse keeper") && c.Texts[0] != text {
			if held.Add(1) == selfTest {
				close(all)
			}
			select {
			case <-all:
			case <-r.Context().Done():
			}
		}
		return false
	}}
	r := newRemoteRig(t, served(t, provider))
	before := len(provider.Calls())
	e := r.start(r.remote(), "embed", "--model", "far", text)
	if status := e.wait(waitTimeout).ExitStatus(); status != 0 {
		t.Fatalf("embed ended with %d: %s", status, e.tail())
	}
	if n := len(provider.Calls()) - before; n != 2 { //nolint:mnd // the probe, and the text
		t.Errorf("%d requests for one text", n)
	}
	holding.Store(true)
	c := r.run(r.remote()...)
	r.streaming(c)
	r.db.MustExec(`INSERT INTO public.docs VALUES (1, $1)`, text)
	r.caughtUp()
	if n := held.Load(); n < selfTest || r.count(`SELECT count(*) FROM public.docs_embedding`) != 1 {
		t.Errorf("%d texts of the self-test were asked", n)
	}
	c.terminate()
}

// newRemoteRig makes a table with an embedding table, with a model of an OpenAI-like server.
func newRemoteRig(t *testing.T, url string) *remoteRig {
	t.Helper()
	return newRemoteRigOn(t, testenv.DB(t, testenv.Empty()), url, "", "")
}

// newRemoteRigOn does so in a database, with further settings of the model and of the pipeline.
func newRemoteRigOn(t *testing.T, db *testenv.Database, url, model, of string) *remoteRig {
	t.Helper()
	db.MustExec(`CREATE TABLE IF NOT EXISTS public.docs (id int PRIMARY KEY, body text)`)
	r := &remoteRig{&rig{t: t, db: db, slot: db.SlotName(), dir: t.TempDir()}}
	r.calls = filepath.Join(r.dir, "calls")
	r.url = r.login(testenv.Owner)
	if err := os.WriteFile(filepath.Join(r.dir, "c.yaml"), fmt.Appendf(nil, `
models:
  - {name: far, dialect: openai, url: %q, model: text-embedder-3, dims: %d, api_key_env: PROVIDER_KEY,
      batch: {texts: 16}, patience: 500ms%s}
pipelines:
  - {name: docs, table: public.docs, columns: [body], model: far, into: {table: docs_embedding}%s}
`, url, dims, model, of), 0o600); err != nil {
		t.Fatal(err)
	}
	r.setUp(r.remote())
	r.becomeRunRole()
	return r
}

// remote are the variables that lead to the provider.
func (r *remoteRig) remote() []string {
	return []string{
		"EMBEDSIDECAR_CONFIG=" + filepath.Join(r.dir, "c.yaml"), "PROVIDER_KEY=" + providerKey,
		"EMBEDSIDECAR_LOG_LEVEL=debug",
	}
}

// provenRemote compares every vector with the provider's for the text that the row has now, and lets the program do
// the same.
func (r *remoteRig) provenRemote(provider *remotetest.Server) {
	r.t.Helper()
	rows := testenv.Values[string](r.db,
		`SELECT d.body || '|' || (SELECT string_agg(x::text, ',') FROM unnest(e.embedding::real[]) AS x)
		FROM public.docs AS d JOIN public.docs_embedding AS e USING (id)`)
	if want := r.count(`SELECT count(*) FROM public.docs`); len(rows) != want {
		r.t.Errorf("%d of %d rows have a vector", len(rows), want)
	}
	for _, row := range rows {
		body, list, _ := strings.Cut(row, "|")
		var off float64
		want := provider.Vector(body, false, dims)
		for i, text := range strings.Split(list, ",") {
			var x float64
			if _, err := fmt.Sscan(text, &x); err != nil {
				r.t.Fatal(err)
			}
			off = max(off, math.Abs(x-float64(want[i])))
		}
		if off > 1e-5 {
			r.t.Fatalf("a vector is not that of its text, by %f", off)
		}
	}
	c := r.start(r.remote(), "verify", "--deep", "1000000")
	if s := c.wait(waitTimeout); s.ExitStatus() != 0 {
		r.t.Errorf("verify ended with status %d:\n%s", s.ExitStatus(), c.tail())
	}
	for _, args := range [][]string{{"status", "-o", "json"}, {"check"}} { // for keyIsNowhere
		r.start(r.remote(), args...).wait(waitTimeout)
	}
}

// keyIsNowhere looks for the provider's key in everything that was written: logs, output and tables.
func (r *remoteRig) keyIsNowhere() {
	r.t.Helper()
	logs, err := filepath.Glob(filepath.Join(r.dir, "*.log"))
	if err != nil || len(logs) < 3 {
		r.t.Fatalf("%d logs, error %v", len(logs), err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			r.t.Fatal(err)
		}
		if strings.Contains(string(content), providerKey) {
			r.t.Errorf("%s holds the key", filepath.Base(log))
		}
	}
	for _, table := range testenv.Values[string](r.db,
		`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('embedsidecar', 'public')`) {
		if n := r.count(`SELECT count(*) FROM `+table+` AS t WHERE t::text LIKE '%' || $1 || '%'`, providerKey); n > 0 {
			r.t.Errorf("%d rows of %s hold the key", n, table)
		}
	}
}
