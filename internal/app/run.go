package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/filewatch"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
)

// New makes a Node that keeps embeddings in sync with tables. Run runs it.
func New(o Options) *Node { return newNode(o, observe.Starting, true) }

// pools are the connections of a sidecar.
type pools struct {
	work, stream *pgxpool.Pool
	queries      *pgxpool.Pool // the same as work without a query listener
	admin        *pgxpool.Pool // the same as work without an admin listener
}

// owner returns the pool for set-ups: stream if a pooler is in front of work, else work.
func (p *pools) owner() *pgxpool.Pool {
	if database.Pooled(p.work) {
		return p.stream
	}
	return p.work
}

func (p *pools) close() {
	for _, pool := range []*pgxpool.Pool{p.admin, p.queries, p.stream, p.work} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Run starts the parts in order, runs them, and stops them in reverse order.
func (n *Node) Run(ctx context.Context, o RunOptions) (err error) {
	end, err := n.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if n.o.Config.Several() {
		n.several = newSeveral(n, o)
	}
	finish := func() error { return nil }
	if address := n.o.Config.Queries.Listen; address != "" {
		if finish, err = n.queries(ctx, address); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, finish()) }()
	}
	service, leave, err := n.administer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	// Requests under way need the connections. The deferred calls above report the errors.
	if n.several != nil {
		return n.several.run(ctx, service)
	}
	return n.one.run(ctx, o, service, func() { _, _ = finish(), leave() })
}

// run runs the database. It calls leave before it closes the connections.
func (n *Database) run(ctx context.Context, o RunOptions, service *admin.Service, leave func()) error {
	var p pools
	defer p.close()
	if err := n.connect(ctx, &p); err != nil {
		return err
	}
	defer leave()
	service.Follow(p.admin)
	n.follow(ctx, p.work)
	n.audit.Store(p.work)
	defer n.audit.Store(nil)
	if err := n.upgraded(ctx, &p, o); err != nil {
		return err
	}
	// The server may restart meanwhile. The next try finds what was made before.
	prepare := func(ctx context.Context) (struct{}, error) {
		err := n.beginPrepared(ctx, &p, service, o.Reached != nil,
			func(ctx context.Context) error { return n.prepare(ctx, &p, o) })
		n.source.Wait(err) // shown while it is retried
		return struct{}{}, err
	}
	if _, err := connection.Retry(ctx, n.open, prepare); err != nil {
		return err
	}
	n.deployed.settled = true
	service.Use(n.config())
	if o.Reached != nil {
		if err := n.workable(ctx, p.work); err != nil {
			return err
		}
	}

	if o.Reached == nil {
		return n.keepWorking(ctx, &run{
			p: &p, o: o, service: service, again: make(chan struct{}, 1), quiet: make(chan *resting),
		})
	}
	s := n.sidecar(&p, o.Role)
	n.backend.Follow(s, p.queries)
	n.source.Follow(s, p.work, p.stream) //nolint:contextcheck // what scrapes ask for ends with the listener
	n.o.Working(ctx)
	n.started()
	n.atStart(ctx, p.work)
	if err := n.catchUp(ctx, s, p.work, o.Reached); err != nil {
		return err
	}
	known, err := n.indexed(ctx, &p)
	if err == nil {
		_, err = n.buildIndexes(ctx, &p, known)
	}
	return cmp.Or(err, n.deployed.failed)
}

// keepWorking works until ctx ends, and follows the configuration. It may rest while nothing changes.
func (n *Database) keepWorking(ctx context.Context, r *run) error {
	n.o.Working(ctx)
	n.atStart(ctx, r.p.work)
	n.running.Store(r)
	defer n.running.Store(nil)
	for {
		err := n.keepAwake(ctx, r)
		rest, is := errors.AsType[*resting](err)
		if !is {
			return err
		}
		n.rest(ctx, r, rest)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// keepAwake works until ctx ends, or until nothing changes: then it returns a *resting. Background loops are restarted
// after a panic, so that the other databases of the process go on.
func (n *Database) keepAwake(ctx context.Context, r *run) error {
	working, stop := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop(nil)
	keeper := restart.New(n.o.Log)
	beside := func(loop func(ctx context.Context)) {
		all.Go(func() {
			stop(keeper.Keep(working, restart.Housekeeping, func(ctx context.Context) error { loop(ctx); return nil }))
		})
	}
	n.deployed.tried = time.Now()
	beside(func(ctx context.Context) { n.keepSettled(ctx, r) })
	if r.o.Role != Stream { // a pure stream process builds no indexes and switches no models
		beside(func(ctx context.Context) { n.keepComplete(ctx, r.p) })
		beside(func(ctx context.Context) { n.keepWishes(ctx, r.p) })
	}
	if n.mayRest(r) {
		beside(func(ctx context.Context) { n.keepQuiet(ctx, r) })
	}
	if file := fileOf(n.config()); file != "" && n.o.Reread != nil {
		beside(func(ctx context.Context) {
			filewatch.Each(ctx, file, n.o.Log, func(ctx context.Context) bool {
				return !n.Configure(ctx, "reload", "the file "+file).Passing
			})
		})
	}
	err := n.work(working, r)
	if panicked, ok := errors.AsType[*restart.Error](context.Cause(working)); ok {
		return errors.Join(err, panicked)
	}
	return err
}

// connect opens the pools one after another, and retries while the server is away. After an error the caller closes the
// pools that were opened.
func (n *Database) connect(ctx context.Context, p *pools) (err error) {
	open := func(ctx context.Context, open func(ctx context.Context) (*pgxpool.Pool, error)) (*pgxpool.Pool, error) {
		return connection.Retry(ctx, n.open, open)
	}
	p.work, err = open(ctx, func(ctx context.Context) (*pgxpool.Pool, error) {
		pipelines := len(n.config().Pipelines)
		if len(n.config().InSchemas()) > 0 {
			pipelines = n.config().Tenants.Schemas
		}
		return n.open.Pool(ctx, n.open.WorkConns(pipelines))
	})
	if err != nil {
		return err
	}
	p.stream, err = open(ctx, func(ctx context.Context) (*pgxpool.Pool, error) {
		return n.open.Server(ctx, p.work, connection.Stream)
	})
	p.queries, p.admin = p.work, p.work
	// Searches, administrators and the work have separate pools, so that none waits for another.
	if err == nil && n.config().Queries.Listen != "" {
		p.queries, err = open(ctx, func(ctx context.Context) (*pgxpool.Pool, error) {
			return n.open.Pool(ctx, connection.Queries)
		})
	}
	if err == nil && n.config().Admin.Listen != "" {
		p.admin, err = open(ctx, func(ctx context.Context) (*pgxpool.Pool, error) {
			return n.open.Pool(ctx, connection.Few)
		})
	}
	return err
}

func (n *Database) sidecar(p *pools, role Role) *sidecar.Sidecar {
	c := n.config()
	if n.shared == nil {
		n.inWork.Set(c.Limits.InWork)
	}
	return sidecar.New(sidecar.Options{
		Work: worker.Work{
			Loops: connection.Loops(c), BatchRows: c.Workers.BatchRows, Lease: c.Lease, Retry: retryOf(c),
			Limit: n.shared.limitOf(c), InWork: n.inWork,
		},
		Slot: c.Slot.Name, Instance: c.Instance, Host: n.o.Host, Version: n.o.Build.Version,
		Pool: p.work, StreamPool: p.stream, Dial: n.open.Dial,
		Load: func(ctx context.Context) ([]pipeline.Pipeline, error) {
			// Use one connection: separate transactions would each queue behind the workers that wait for the pool.
			conn, err := p.work.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			defer conn.Release()
			loaded, err := n.loader.Load(ctx, conn, c.Slot.Name)
			n.noticed(loaded)
			return loaded, err
		},
		Forget:     n.loader.Forget,
		OnRequest:  func() { sleep.Wake(n.called) },
		Repair:     func(ctx context.Context) error { return publish.Republish(ctx, p.stream, c.Slot.Name) },
		Embedder:   n.observer.Embedder,
		Service:    n.shared.service(),
		Reranker:   func(name string) string { return n.config().SearchOf(name).Rerank },
		Budget:     n.budget,
		Log:        n.o.Log,
		Disabled:   !c.Enabled,
		NoWork:     role == Stream,
		NoStream:   role == Work,
		StopOnLost: c.Slot.StopOnLost,
		Failover:   !c.Slot.NoFailover,
		NoDirect:   !c.Workers.Direct,
		History:    queue.History{Keep: c.History.Keep, Rows: int64(c.History.Rows), Bytes: queue.DefaultHistory.Bytes},
		// 0 is the sidecar's own default.
		DrainTimeout: max(c.Workers.DrainTimeout, time.Nanosecond),
		CacheBytes:   c.Workers.CacheBytes,
		Fresh:        n.source.Fresh(),
		Price:        func(p *pipeline.Pipeline) pipeline.Price { return c.PriceOf(p.Model) },
		ModelBudget:  c.BudgetOf,
		Redact:       n.o.Redact,
		Trace:        n.o.Trace,
	})
}

// retryOf returns the retry settings for failed work.
func retryOf(c *config.Config) worker.Retry {
	r := worker.Retry{MaxAttempts: c.Retry.MaxAttempts, Initial: c.Retry.Initial, Max: c.Retry.Max}
	if i := slices.Index(pipeline.LaneWords, c.Retry.Priority); i >= 0 {
		lane := pipeline.Lane(i) //nolint:gosec // there are four
		r.Lane = &lane
	}
	return r
}

// catchUp runs the sidecar until everything committed before now is processed.
func (n *Database) catchUp(ctx context.Context, s *sidecar.Sidecar, pool *pgxpool.Pool,
	reached func(ctx context.Context, r Reached) error,
) error {
	lsn, err := report.Now(ctx, pool)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		state report.CaughtUp
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		state, err := report.Wait(running, pool, n.config().Slot.Name, lsn)
		cancel()
		ended <- end{state, err}
	}()
	err = s.Run(running)
	cancel()
	e := <-ended
	switch {
	// other sidecars may have finished everything before this one started
	case err != nil && (e.err != nil || !errors.Is(err, context.Canceled)):
		return classified(err)
	case e.err != nil && ctx.Err() == nil:
		return e.err
	}
	r := Reached{Pool: pool, LSN: lsn, State: e.state}
	if e.err != nil {
		r.Err = ctx.Err()
	}
	return reached(ctx, r)
}

// classified adds a class and a hint to stream errors that a user must fix.
func classified(err error) error {
	fatal, ok := errors.AsType[*replication.FatalError](err)
	if !ok {
		return err
	}
	is := fatalKinds[fatal.Kind]
	return &problem.Error{Class: is.class, Code: is.code, Err: err, Hint: []string{fatal.Way}}
}

// fatalKinds maps fatal stream errors to their classes and codes.
var fatalKinds = map[replication.Kind]struct {
	class problem.Class
	code  code.Code
}{
	replication.NotSetUp:    {problem.NotSetUp, code.NotSetUp},
	replication.Conflict:    {problem.Conflict, code.OtherSlot},
	replication.Lost:        {problem.Failed, code.SlotLost},
	replication.ReadOnly:    {problem.Connect, code.Standby},
	replication.OtherServer: {problem.Usage, code.Copied},
}

// atStart logs the pending rows of each pipeline, and re-queues failed rows if configured. A failure is only logged.
func (n *Database) atStart(ctx context.Context, pool *pgxpool.Pool) {
	st, err := report.Options{CountUpTo: -1, AtOnce: true}.Read(ctx, pool)
	if err != nil {
		if ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "could not read the pending rows", "error", err)
		}
		return
	}
	var failed []string
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.Slot != n.config().Slot.Name {
			continue
		}
		oldest := 0.0
		if p.OldestSeconds != nil {
			oldest = *p.OldestSeconds
		}
		n.o.Log.InfoContext(ctx, "at the start", "pipeline", p.Name, "pending", p.Pending, "retrying", p.Retrying,
			"failed", p.Failed, "cancelled", p.Cancelled, "oldest_seconds", oldest, "scan", p.ScanPhase)
		if p.Failed > 0 {
			failed = append(failed, p.Name)
		}
	}
	if !n.config().Retry.FailedOnStart || len(failed) == 0 {
		return
	}
	done, err := verbs.New(pool, "start of "+n.config().Instance).Do(ctx, verbs.Retry, failed, verbs.Request{})
	for _, o := range done {
		n.o.Log.InfoContext(ctx, "dead letters re-queued", "pipeline", o.Pipeline, "rows", o.Rows)
	}
	if err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "could not re-queue dead letters", "error", err)
	}
}
