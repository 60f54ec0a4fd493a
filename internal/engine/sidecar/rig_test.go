package sidecar_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const dims = 8

// waitTimeout bounds every wait of a test. It is long: machines are slow, and other transactions of the server hold
// scans up.
const waitTimeout = 10 * time.Minute

// counter is an in-process embedder that counts, with a hook that may fail or wait.
type counter struct {
	mu     sync.Mutex
	calls  int
	texts  map[string]int
	before func(ctx context.Context, texts []string) error
	sparse bool
}

func newCounter() *counter { return &counter{texts: map[string]int{}} }

// counts returns how often each text was embedded.
func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.texts)
}

func (c *counter) Describe(context.Context) (embed.Description, error) {
	if c.sparse {
		return embed.Description{
			Plugin: "counter", Model: "counter", Fingerprint: "counter-sparse", Dims: vector.SparseDims,
			Deterministic: true, Sparse: true,
		}, nil
	}
	return embed.Description{
		Plugin: "counter", Model: "counter", Fingerprint: "counter-1", Dims: dims,
		Deterministic: true,
	}, nil
}

func (c *counter) hook(before func(ctx context.Context, texts []string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

func (c *counter) Embed(ctx context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	c.mu.Lock()
	c.calls++
	for _, text := range texts {
		c.texts[text]++
	}
	before := c.before
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx, texts); err != nil {
			return nil, err
		}
	}
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		switch {
		case vector.Empty(text):
			results[i].Empty = true
		case c.sparse:
			results[i].Vector = sparseOf(text)
		default:
			results[i].Vector = vector.Of(text, dims)
		}
	}
	return results, nil
}

// Tokenize implements embed.Tokenizer: tokens are words.
func (*counter) Tokenize(_ context.Context, texts []string) (embed.Tokens, error) {
	tokens := embed.Tokens{Ends: make([][]int, len(texts))}
	for i, text := range texts {
		tokens.Ends[i] = vector.TokenEnds(text)
	}
	return tokens, nil
}

// sent returns how many texts were sent, in all or with this content.
func (c *counter) sent(content ...string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(content) == 0 {
		for _, times := range c.texts {
			n += times
		}
	}
	for _, text := range content {
		n += c.texts[text]
	}
	return n
}

// rig is a database with pipelines and what works them, as the least-privileged role.
type rig struct {
	t         *testing.T
	db        *testenv.Database
	slot      string
	role      string
	url       string // of the run role
	pipelines []pipeline.Pipeline
	embedder  *counter
	options   func(*sidecar.Options)
	patience  time.Duration // of the sidecar's pools
	trusted   []string      // whom it trusts
}

// newRig sets pipelines up as the tables' owner, who is no superuser.
func newRig(t *testing.T, db *testenv.Database, specs ...pipeline.Spec) *rig {
	t.Helper()
	return newRigWith(t, db, newCounter(), specs...)
}

// newRigWith is newRig with an embedder.
func newRigWith(t *testing.T, db *testenv.Database, embedder *counter, specs ...pipeline.Spec) *rig {
	t.Helper()
	r := &rig{t: t, db: db, slot: db.SlotName(), embedder: embedder}
	r.init(specs...)
	r.role = db.RunRole(r.pipelines...)
	r.url = db.URL(r.role)
	r.known()
	return r
}

// known has what was granted count as known: grants give the columns other versions than those that init has seen.
// These tests are about what happens after that.
func (r *rig) known() {
	r.t.Helper()
	sql, args := r.catalogue()
	r.db.MustExecSuper(`UPDATE embedsidecar.pipeline AS p SET catalogue = c.current FROM (`+sql+
		`) AS c WHERE c.pipeline_id = p.pipeline_id`, args...)
}

// catalogue returns the query for the marks of the tables.
func (r *rig) catalogue() (sql string, args []any) {
	r.t.Helper()
	sql, args, err := pgx.StrictNamedArgs{"slot": r.slot, "pipeline": nil}.RewriteQuery(r.t.Context(), nil,
		strings.TrimRight(strings.TrimSpace(sqlfiles.Query("pipeline_catalogue")), ";"), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return sql, args
}

func (r *rig) init(specs ...pipeline.Spec) setup.Report {
	r.t.Helper()
	described := map[string]embed.Description{}
	for i := range specs {
		specs[i].Enabled = true
		if specs[i].Name == "" {
			specs[i].Name = specs[i].Table
		}
		specs[i].Plugin, specs[i].Model = "counter", "counter"
		specs[i].Priority = pipeline.Normal
		described[specs[i].Name], _ = r.embedder.Describe(r.t.Context())
	}
	owner := r.db.URL(testenv.Owner)
	pool := connect(r.t, owner, 4)
	done, err := setup.Init(r.t.Context(), setup.Options{
		Pool: pool, ReplicationDSN: slowly(owner), Slot: r.slot, Publication: r.db.Name + "_pub", Specs: specs,
		Descriptions: described, Failover: true, Log: logger(r.t),
		SlotTimeout: waitTimeout, LockTimeout: waitTimeout,
	})
	if err != nil {
		r.t.Fatalf("init: %v", err)
	}
	r.pipelines = done.Pipelines
	return done
}

func connect(t *testing.T, url string, n int32) *pgxpool.Pool {
	t.Helper()
	return waitingPool(t, url, n, 0)
}

func waitingPool(t *testing.T, url string, n int32, patience time.Duration, trusted ...string) *pgxpool.Pool {
	t.Helper()
	pool, err := database.Connect(t.Context(), slowly(url), database.Options{
		MaxConns: n, IdleInTransaction: -1, Patience: patience,
		Log: logger(t), TrustedOwners: trusted,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// slowly lets a connection take its time: a server that stands still for a while is not what these tests are about.
func slowly(url string) string { return url + "&connect_timeout=120" }

// logger writes the log of parts under test where go test shows it for a failed test.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(&testWriter{t: t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct {
	mu   sync.Mutex
	t    *testing.T
	over bool
}

func (w *testWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	canary.Search("the log of "+w.t.Name(), b)
	if w.t.Context().Err() == nil && !w.over {
		w.t.Log(string(b[:len(b)-1]))
	}
	return len(b), nil
}

// start runs a sidecar and returns it with a function that stops it and waits.
func (r *rig) start() (*sidecar.Sidecar, func()) {
	r.t.Helper()
	// Cleanups run in reverse order: the pools close after the sidecar has stopped.
	pool := waitingPool(r.t, r.url, 8, r.patience, r.trusted...)
	direct := waitingPool(r.t, r.url, 3, r.patience, r.trusted...)
	at, err := pgx.ParseConfig(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	// The stream's role may replicate and nothing else. It goes by the same way as the other: through a proxy, if there
	// is one.
	url := slowly(r.db.URLVia(net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), r.db.StreamRole()))
	loader := &resolve.Loader{}
	o := sidecar.Options{
		Slot: r.slot, Instance: r.t.Name(), Version: "test", Pool: pool, StreamPool: direct, Log: logger(r.t),
		Dial: func(ctx context.Context) (*pgconn.PgConn, error) {
			return database.ConnectReplication(ctx, url, database.Options{IdleInTransaction: -1})
		},
		Load:      func(ctx context.Context) ([]pipeline.Pipeline, error) { return loader.Load(ctx, pool, r.slot) },
		Forget:    loader.Forget,
		Embedder:  func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) { return r.embedder, nil },
		Heartbeat: time.Second,
		// However long the machine stands still, no lease is lost and no commit is given up, so that what happens can be
		// counted.
		Work: worker.Work{
			Retry: worker.Retry{Initial: 50 * time.Millisecond, Max: time.Second}, Lease: time.Hour,
		},
		VisibilityTimeout: time.Hour,
		// These tests look into the queue, and hold what works it, unless they say otherwise.
		NoDirect: true,
	}
	if r.options != nil {
		r.options(&o)
	}
	s := sidecar.New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				r.t.Errorf("sidecar: %v", err)
			}
		})
	}
	r.t.Cleanup(stop)
	return s, stop
}

// settle waits until everything committed so far is worked.
func (r *rig) settle() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	lsn, err := report.Now(ctx, r.db.Pool)
	if err != nil {
		r.t.Fatal(err)
	}
	state, err := report.Wait(ctx, r.db.Super(), r.slot, lsn)
	if err != nil {
		r.t.Fatalf("not caught up: %+v: %v; tasks: %v", state, err, testenv.Values[string](r.db,
			"SELECT row_key || ' ' || state || ' ' || coalesce(error_code, '') || ' ' || coalesce(error_message, '') FROM embedsidecar.task LIMIT 10"))
	}
}

// counted waits until everything committed so far is worked, what we wrote has come back through the slot, and all of
// that is in the stream's counters: it counts a batch when it begins the next one at the latest.
func (r *rig) counted() {
	r.t.Helper()
	for range 3 {
		r.settle()
	}
}

// noticed waits until the streamer has seen the tables as they are now, and has asked for the scans that that takes.
func (r *rig) noticed() {
	r.t.Helper()
	type mark struct{ Known, Current string }
	sql, args := r.catalogue()
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		marks := testenv.Rows[mark](r.db, "SELECT coalesce(known::text, '') AS known, current::text FROM ("+sql+") AS c",
			args...)
		return !slices.ContainsFunc(marks, func(m mark) bool { return m.Known != m.Current }), fmt.Sprint(marks)
	})
}

// lossy lets leases run out soon, for tests that break what would give them back.
func lossy(o *sidecar.Options) { o.Lease = 5 * time.Second }

// verify proves P1 for every pipeline: what the tables hold is what embedding their texts anew gives.
func (r *rig) verify() {
	r.t.Helper()
	for i, found := range r.reports() {
		if !found.OK() {
			r.t.Errorf("pipeline %s: %+v", r.pipelines[i].Name, found)
		}
	}
}

func (r *rig) reports() []worker.Report {
	r.t.Helper()
	pool := waitingPool(r.t, r.url, 2, 0, r.trusted...)
	var loaded []pipeline.Pipeline
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		var err error
		if loaded, err = resolve.Load(r.t.Context(), pool, r.slot); err != nil {
			r.t.Fatal(err)
		}
		return !slices.ContainsFunc(loaded, func(p pipeline.Pipeline) bool { return p.Status == pipeline.Locked }),
			"a table is locked"
	})
	r.pipelines = loaded
	reports := make([]worker.Report, len(loaded))
	for i := range loaded {
		var err error
		w := worker.New(worker.Options{
			Pipeline: &loaded[i], DB: pool, Queue: queue.New(pool),
			Service: embed.NewService(r.embedder, 0), Log: logger(r.t),
		})
		if reports[i], err = w.Verify(r.t.Context(), 1<<30); err != nil {
			r.t.Fatal(err)
		}
	}
	return reports
}

func (r *rig) count(sql string, args ...any) int64 {
	r.t.Helper()
	return testenv.Value[int64](r.db, sql, args...)
}

// column and table are specs of the two destinations.
func column(table string, columns ...string) pipeline.Spec {
	return pipeline.Spec{Schema: "public", Table: table, Columns: columns, IntoColumn: "embedding"}
}

func intoTable(table string, columns ...string) pipeline.Spec {
	return pipeline.Spec{Schema: "public", Table: table, Columns: columns, IntoTable: table + "_embedding"}
}

// bothDestinations runs a test with each.
func bothDestinations(t *testing.T, test func(t *testing.T, spec func(table string, columns ...string) pipeline.Spec)) {
	t.Helper()
	for name, spec := range map[string]func(string, ...string) pipeline.Spec{"column": column, "table": intoTable} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, spec) })
	}
}

var _ = fmt.Sprint
