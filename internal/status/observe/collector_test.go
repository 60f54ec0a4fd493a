package observe

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// A counter never falls within a process: neither when a pipeline gets a new worker, nor when the database's figures
// are from before the pipeline was made.
func TestCollector_CountersDoNotFall(t *testing.T) {
	t.Parallel()
	c := newCollector(t.Context(), Options{Config: config.Default()}, metrics.New(metrics.Build{}, health.Codes()), "")
	defer c.close()
	work := func(embedded int64) []sidecar.State {
		stats := &worker.Stats{}
		stats.Embedded.Store(embedded)
		return []sidecar.State{{Pipeline: pipeline.Pipeline{Spec: pipeline.Spec{Name: "docs"}}, Worker: stats}}
	}
	counted := func(want float64) {
		t.Helper()
		if got := testutil.ToFloat64(c.pipeline("docs").metrics.Finished.At("embedded")); got != want {
			t.Errorf("%v rows embedded, want %v", got, want)
		}
	}
	first := work(5)
	c.worked(first)
	counted(5)
	c.told(report.Status{}, first)
	counted(5)
	first[0].Worker.Embedded.Add(1) // after the last read
	c.worked(work(2))
	counted(8)
	c.told(report.Status{}, nil) // the pipeline is gone
	if len(c.pipelines) != 0 {
		t.Error("a pipeline that is gone is still shown")
	}
}

// ledgerReads counts the statements on the ledger.
type ledgerReads struct{ atomic.Int64 }

func (l *ledgerReads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "embedsidecar.ledger") {
		l.Add(1)
	}
	return ctx
}

func (*ledgerReads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// coverageFixture has a pipeline of four rows, and a collector with its own pool.
func coverageFixture(t *testing.T, tracer pgx.QueryTracer) (c *collector, db *testenv.Database, pool *pgxpool.Pool) {
	t.Helper()
	db = testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text)`)
	db.MustExec(`INSERT INTO docs SELECT i, 'body' FROM generate_series(1, 4) AS i`)
	db.MustExec(`ANALYZE docs`)
	db.MustExec(`INSERT INTO embedsidecar.installation (secret) VALUES ('\x00') ON CONFLICT DO NOTHING`)
	cfg := config.Default()
	cfg.Slot.Name = db.SlotName()
	db.MustExecSuper(`INSERT INTO embedsidecar.lsn_checkpoint (slot_name, publication, publication_oid, system_id, timeline,
		consistent_point, lsn)
		SELECT s.slot_name, 'pub', 0, c.system_identifier, 1, s.lsn, s.lsn
		FROM pg_create_logical_replication_slot($1, 'pgoutput') AS s, pg_control_system() AS c`, cfg.Slot.Name)
	db.MustExec(`INSERT INTO embedsidecar.pipeline (name, slot_name, table_oid, table_schema, table_name, source_columns,
		key_columns,
		destination_table, destination_schema, dims, plugin, model, fingerprint)
		VALUES ('docs', $1, 'public.docs'::regclass, 'public', 'docs', '{body}', '{id}', 'docs_embedding', 'public', 3,
			'fake', 'fake', 'f')`, cfg.Slot.Name)
	pc, err := pgxpool.ParseConfig(db.URL(testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	pc.ConnConfig.Tracer = tracer
	pool, err = pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c = newCollector(t.Context(), Options{Config: cfg, Log: slog.New(slog.DiscardHandler)},
		metrics.New(metrics.Build{}, health.Codes()), "")
	t.Cleanup(c.close)
	return c, db, pool
}

// gathered returns the values of a family of gauges.
func gathered(t *testing.T, c *collector, name string) (values []float64) {
	t.Helper()
	families, err := c.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				values = append(values, m.GetGauge().GetValue())
			}
		}
	}
	return values
}

// Counting a large ledger may take longer than a scrape waits. Here a lock simulates that.
func TestCollector_ALedgerThatTakesLongHidesNothingElse(t *testing.T) {
	t.Parallel()
	c, db, pool := coverageFixture(t, nil)
	held, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := held.Exec(t.Context(), `LOCK embedsidecar.ledger`); err != nil {
		t.Fatal(err)
	}
	c.ask(pool, func() []sidecar.State { return nil })
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
		up, expected := gathered(t, c, "embedsidecar_up"), gathered(t, c, "embedsidecar_backfill_rows_expected")
		return len(up) == 1 && up[0] == 1 && len(expected) == 1, fmt.Sprintf("up %v, rows expected %v", up, expected)
	})
	if got := gathered(t, c, "embedsidecar_coverage_ratio"); len(got) != 0 {
		t.Errorf("coverage %v while nobody can count", got)
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.asking.Wait()
	if got := gathered(t, c, "embedsidecar_coverage_ratio"); len(got) != 1 || got[0] != 0 {
		t.Errorf("coverage %v when it is counted, want 0", got)
	}
}

// Scrapes count the ledger at most once a minute, and so does status --watch. A changed pipeline is counted at once.
func TestCollector_ScrapesDoNotCountTheLedgerAgainAndAgain(t *testing.T) {
	t.Parallel()
	var reads ledgerReads
	c, db, pool := coverageFixture(t, &reads)
	db.MustExecSuper(`CREATE PUBLICATION pub`)
	db.MustExec(`UPDATE embedsidecar.lsn_checkpoint SET lsn = '7FFFFFF/0'`) // everything was read, so coverage is known
	know := func(key string) {
		db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
			SELECT pipeline_id, $1, '', '', generation, '0/1' FROM embedsidecar.pipeline`, key)
	}
	scrape := func(want int64, coverage float64) {
		t.Helper()
		c.asked = time.Time{} // the figures are outdated
		c.ask(pool, func() []sidecar.State { return nil })
		c.asking.Wait()
		if got := reads.Load(); got != want {
			t.Errorf("the ledger was read %d times, want %d", got, want)
		}
		if got := gathered(t, c, "embedsidecar_coverage_ratio"); len(got) != 1 || got[0] != coverage {
			t.Errorf("coverage %v, want %v", got, coverage)
		}
	}
	know("1")
	scrape(1, 0.25)
	know("2")
	scrape(1, 0.25)
	scrape(1, 0.25)
	db.MustExec(`UPDATE embedsidecar.pipeline SET generation = 2`)
	scrape(2, 0)
	if st, err := report.Read(t.Context(), pool); err != nil || st.Pipelines[0].Known != 0 || reads.Load() != 3 {
		t.Errorf("who asks once gets %+v, %v after %d reads, want a count", st.Pipelines, err, reads.Load())
	}
	if _, err := (report.Options{CountUpTo: -1}).Read(t.Context(), pool); err != nil || reads.Load() != 3 {
		t.Errorf("%v: who does not ask for the coverage has the ledger read", err)
	}
}

// TestP10_BeyondTheNamedPipelinesTheWorstIsShown: for pipelines that share a label, each figure is the sum or the
// worst, in any order. The state of one that needs a user's action is shown under its own name until it is resolved.
func TestP10_BeyondTheNamedPipelinesTheWorstIsShown(t *testing.T) {
	t.Parallel()
	c := newCollector(t.Context(), Options{Config: config.Default()}, metrics.New(metrics.Build{}, health.Codes()), "")
	defer c.close()
	age := 70.0
	var st report.Status
	for i := range metrics.MaxPipelines + 4 {
		st.Pipelines = append(st.Pipelines, report.Pipeline{
			Name: fmt.Sprintf("p%03d", i), Slot: c.Config.Slot.Name, State: health.UpToDate, Enabled: true, ScanPhase: "done",
		})
	}
	far := st.Pipelines[metrics.MaxPipelines:]
	far[0].State, far[0].Pending, far[0].OldestSeconds = health.Working, 3, &age
	far[1].State, far[1].Status, far[1].NeedsAct = health.Misconfigured, "misconfigured", true
	far[2].Pending, far[2].ScanPhase = 4, "rows"
	shows := func(name, pipeline, state string, want float64) {
		t.Helper()
		families, err := c.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := math.NaN()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if f.GetName() == "embedsidecar_"+name && labels["pipeline"] == pipeline && labels["state"] == state {
					found = m.GetGauge().GetValue()
				}
			}
		}
		if found != want && !(math.IsNaN(found) && math.IsNaN(want)) {
			t.Errorf("%s of %s, %q: %v, want %v", name, pipeline, state, found, want)
		}
	}
	c.told(st, nil)
	shows("queue_tasks", metrics.Other, "todo", 7)
	shows("queue_oldest_pending_age_seconds", metrics.Other, "", age)
	shows("backfill_running", metrics.Other, "", 1)
	shows("pipeline_state", metrics.Other, "working", 1)
	shows("pipeline_state", metrics.Other, "misconfigured", 0)
	shows("pipeline_state", far[1].Name, "misconfigured", 1)
	shows("pipeline_state", "p000", "up_to_date", 1)
	far[1].State = health.Paused
	c.told(st, nil)
	shows("pipeline_state", far[1].Name, "misconfigured", math.NaN())
	shows("pipeline_state", far[1].Name, "paused", 1)
	for _, code := range health.Codes() { // the texts that status returns for every state
		st.Pipelines[0].State = health.Code(code)
		c.told(st, nil)
		for _, other := range health.Codes() {
			shows("pipeline_state", "p000", other, map[bool]float64{true: 1}[other == code])
		}
	}
	st.Pipelines[0].State = health.UpToDate
	far[1].State, far[1].NeedsAct = health.UpToDate, false
	c.told(st, nil)
	shows("pipeline_state", far[1].Name, "paused", math.NaN())
}

// TestP5_OneBrokenPipelineLeavesTheProcessReady: readiness is the process's; pipeline errors are only shown.
func TestP5_OneBrokenPipelineLeavesTheProcessReady(t *testing.T) {
	t.Parallel()
	s := Snapshot{Phase: Queries, Standing: []report.Pipeline{
		{Name: "docs", State: health.Misconfigured, Reason: "a column is gone"},
		{Name: "notes", State: health.UpToDate, Works: true},
	}}
	h := ops.Handler(ops.Options{Ready: func(context.Context) []ops.Check { return s.Ready() }})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "[-]pipeline docs: misconfigured: a column is gone") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
