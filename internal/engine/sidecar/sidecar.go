// Package sidecar is one running embedsidecar: the stream of one slot, the workers of its pipelines, their scans and
// sweeps, and the order in which all of them start and stop. Several sidecars may share a slot: one streams, all
// work.
package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Options are what a Sidecar needs.
type Options struct {
	Slot       string
	Instance   string        // name in the worker registry
	Host       string        // the machine's, as it is told there
	Version    string        // of the program
	Pool       *pgxpool.Pool // for queue and tables; may go through a pooler
	StreamPool *pgxpool.Pool // straight to the server, for the streamer; two connections do
	Dial       func(ctx context.Context) (*pgconn.PgConn, error)
	Load       func(ctx context.Context) ([]pipeline.Pipeline, error) // the slot's pipelines as they are now
	// OnRequest is called when a request for a pipeline is notified; nil: it is ignored.
	OnRequest func()
	Forget    func() // what Load remembers of them; nil: nothing
	// makes a missing publication again, if the role may; may be nil
	Repair func(ctx context.Context) error
	// Embedder returns the embedder of a pipeline: the same value, comparable with ==, for pipelines that share one.
	// What it has embedded for one of them is then not embedded again for another.
	Embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	// Reranker returns the name of the model that reranks what searches of a pipeline find; "": there is none.
	Reranker func(pipeline string) string
	// Service returns the service of an embedder that other sidecars of the process have, too. nil: there are none.
	Service func(e embed.Embedder) *embed.Service
	Budget  *worker.Budget // of texts in memory, of all sidecars of the process. nil: its own
	Limit   *limit.Limit   // of rows and tokens a second, of all sidecars of the process. nil: there is none
	InWork  *limit.InWork  // of rows in work, of all sidecars of the process. nil: there is no limit
	Log     *slog.Logger

	Disabled     bool          // the master switch of this sidecar: changes are queued, nothing is embedded
	NoStream     bool          // work the queue only
	NoWork       bool          // fill the queue only
	StopOnLost   bool          // refuse instead of making a lost slot again
	Failover     bool          // a recreated slot is one that standbys keep a copy of, from PostgreSQL 17 on
	Loops        int           // batches in work per pipeline
	BatchRows    int           // rows per batch
	HeldRows     int           // rows of a column that one write-back holds at most; 0: 64; below 0: the whole batch
	Lease        time.Duration // of a batch
	Retry        worker.Retry
	History      queue.History       // what is kept of it; zero: queue.DefaultHistory
	Heartbeat    time.Duration       // 0: 10 s
	DrainTimeout time.Duration       // for batches in work at shutdown; 0: pipeline.DefaultDrainTimeout
	Redact       func(string) string // takes passwords out of what is stored of errors; nil: there are none
	CacheBytes   int64               // vectors remembered per model; 0: pipeline.DefaultCacheBytes
	// with a commit that is not visible yet, before what may have changed nothing becomes a task; 0: 1 s
	VisibilityTimeout time.Duration
	NoDirect          bool // every change goes through the queue
	// how long a batch may take for changes to be worked at once, while the stream waits; 0: 50 ms
	Quick       time.Duration
	Fresh       func(p *pipeline.Pipeline, d time.Duration)
	Price       func(p *pipeline.Pipeline) pipeline.Price // of its model; nil: of no pipeline
	ModelBudget func(model string) pipeline.Budget        // nil: models have none of their own
	Trace       *trace.Provider                           // nil: nothing is traced
}

// Sidecar runs once.
type Sidecar struct {
	o         Options
	queue     *queue.Queue
	budget    *worker.Budget // of texts in memory
	book      *spend.Book    // of what budgets pay for
	stream    *replication.Stream
	line      *database.Line // of the stream's changes; nil: each step takes a connection of a pool
	questions *questions     // texts that sessions ask for; nil before Run
	reload    chan struct{}
	told      <-chan struct{} // of work for other processes
	keeper    *restart.Keeper
	broken    chan error // a loop of a worker was given up

	registered atomic.Pointer[registration]
	quiet      atomic.Pointer[leave]               // nil: it leaves for good
	loaded     atomic.Pointer[[]pipeline.Pipeline] // as they were loaded last; nil: not yet
	secret     []byte
	urgencies  map[int32]*worker.Urgency // of pipelines whose rows say how urgent they are
	// joined rows: a commit was waited for in vain
	ownersInVain atomic.Bool
	slow         slowOwners    // of the stream
	tracer       *trace.Tracer // nil: nothing is traced
	userPath     string

	refreshing sync.Mutex // keeps an older load from replacing a newer one

	mu       sync.Mutex
	day      day
	spent    map[int32]spent // of workers that have ended, by pipeline: not stored yet
	services map[pipeline.ModelName]*embed.Service
	shared   map[embed.Embedder]*embed.Service // the same, by what embeds
	running  map[int32]*running
	stopped  map[int32]time.Time // since when, of pipelines whose work in hand is not over
	states   []State

	waiting   map[string]health.Problem // what was logged of pipelines that wait; of the supervisor
	described descriptions              // of the supervisor
	stopping  sync.WaitGroup            // workers that finish what they have in hand
	left      chan struct{}             // pipelines are gone
	progress  chan struct{}             // a pipeline may be started that had to wait
	streamed  streamed                  // what was stored of it; of housekeeping, and then of the farewell
	storing   *storing                  // what may be stored; of the same
}

// running is a pipeline that is being worked.
type running struct {
	pipeline pipeline.Pipeline
	service  *embed.Service
	worker   *worker.Worker
	cancel   context.CancelFunc
	done     chan struct{}
	scan     chan struct{}
	counted  spent // of what it has spent: what was stored, or is about to be
	told     done  // of what it has done: what is in the day
}

// State is what a Sidecar knows of one of its pipelines.
type State struct {
	Pipeline pipeline.Pipeline
	Worker   *worker.Stats // nil unless it is being worked
	Service  *embed.Stats
	Problem  *health.Problem // why it is not being worked, or to no effect; nil: it is worked

	service *embed.Service
}

// Reason words why the pipeline is not being worked, or to no effect; "": it is worked.
func (s *State) Reason() string {
	if s.Problem == nil {
		return ""
	}
	return s.Problem.Code.Word() + ": " + s.Problem.Detail
}

// New returns a Sidecar.
func New(o Options) *Sidecar {
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, pipeline.DefaultDrainTimeout)
	o.History = cmp.Or(o.History, queue.DefaultHistory)
	o.CacheBytes = cmp.Or(o.CacheBytes, pipeline.DefaultCacheBytes)
	if o.Service == nil {
		o.Service = func(e embed.Embedder) *embed.Service { return embed.NewService(e, o.CacheBytes) }
	}
	if o.Budget == nil {
		o.Budget = worker.NewBudget(0)
	}
	s := &Sidecar{
		o: o, queue: queue.New(o.Pool), reload: make(chan struct{}, 1),
		services: map[pipeline.ModelName]*embed.Service{}, shared: map[embed.Embedder]*embed.Service{},
		running: map[int32]*running{}, stopped: map[int32]time.Time{}, progress: make(chan struct{}, 1),
		left:    make(chan struct{}, 1),
		spent:   map[int32]spent{},
		waiting: map[string]health.Problem{},
		budget:  o.Budget,
		keeper:  restart.New(o.Log),
		broken:  make(chan error, 1),
	}
	s.book = &spend.Book{DB: o.Pool, Worker: func() int64 { return s.me().id }, Price: o.Price, Budget: o.ModelBudget}
	s.described = descriptions{open: map[*embed.Service]*asking{}, answer: s.goOn, keeper: s.keeper}
	if o.NoWork {
		s.told = s.queue.Told()
	}
	if o.VisibilityTimeout != 0 {
		s.queue.SetVisibilityTimeout(o.VisibilityTimeout)
	}
	return s
}

// Panics returns how often loops of a part have panicked.
func (s *Sidecar) Panics(part restart.Part) int64 { return s.keeper.Panics(part) }

// Stream returns the stream's counters; nil before Run and with NoStream.
func (s *Sidecar) Stream() *replication.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil {
		return nil
	}
	return s.stream.Stats()
}

// States returns the pipelines as they are now.
func (s *Sidecar) States() []State {
	states := slices.Clone(s.applied())
	for i := range states {
		states[i].Problem = s.problemOf(&states[i])
	}
	return states
}

// applied are the pipelines as they were started last, which nobody changes: a thousand are not copied each second.
func (s *Sidecar) applied() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states
}

// Pipelines returns the pipelines as they were loaded last, whether they are at work or not; known is false before
// that.
func (s *Sidecar) Pipelines() (list []pipeline.Pipeline, known bool) {
	loaded := s.loaded.Load()
	if loaded == nil {
		return nil, false
	}
	return slices.Clone(*loaded), true
}

// Run works until ctx ends, then finishes the batches in work, gives back what is left and confirms what is durable.
// It returns nil when asked to stop, or the error that makes going on impossible.
func (s *Sidecar) Run(ctx context.Context) error {
	pipelines, err := s.begin(ctx)
	if ctx.Err() != nil {
		return nil // asked to stop, whatever that interrupted
	}
	if err != nil {
		return err
	}
	// Work in hand outlives ctx for a while; hard ends it.
	hard, cancelHard := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelHard()
	stopTimer := context.AfterFunc(ctx, func() {
		t := time.NewTimer(s.o.DrainTimeout)
		defer t.Stop()
		select {
		case <-t.C:
			s.o.Log.WarnContext(hard, "drain timeout: batches in work are broken off, their tasks given back", "timeout",
				s.o.DrainTimeout.String())
			cancelHard()
		case <-hard.Done():
		}
	})
	defer stopTimer()

	g, gctx := errgroup.WithContext(ctx)
	keep := func(part restart.Part, loop func(context.Context) error) {
		g.Go(func() error { return wrap.Errorf(s.keeper.Keep(gctx, part, loop), "%s", part) })
	}
	if !s.o.NoStream {
		stream, qs := s.newStream(pipelines)
		keep(restart.Replication, func(ctx context.Context) error {
			defer s.line.Close(ctx)
			return stream.Run(ctx)
		})
		keep(restart.Answers, func(ctx context.Context) error { return s.answers(ctx, qs) })
	}
	switch {
	case s.o.NoWork:
		keep(restart.Relay, s.tellWork)
	case s.o.NoStream:
		keep(restart.Relay, s.hearWork)
	}
	keep(restart.Sweeps, func(ctx context.Context) error { return s.queue.RunAside(ctx, s.sweepFailed(ctx)) })
	// Chores begin one after the other, over a connection that is there: at once each would open one.
	for i, chore := range []struct {
		of   restart.Part
		loop func(context.Context) error
	}{{restart.Sweeps, s.sweeps}, {restart.Housekeeping, s.housekeeping}, {restart.Leftovers, s.dropLeftovers}} {
		keep(chore.of, func(ctx context.Context) error {
			if !sleep.For(ctx, min(time.Duration(i+1)*100*time.Millisecond, s.o.Heartbeat)) {
				return nil
			}
			return chore.loop(ctx)
		})
	}
	keep(restart.Notices, s.notices)
	first := pipelines
	keep(restart.Pipelines, func(ctx context.Context) error {
		known := first
		first = nil // what begins again loads them
		return s.supervise(ctx, hard, known)
	})
	err = g.Wait()
	s.farewell(hard)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// newStream makes what reads the slot, and what takes the questions that come through it.
func (s *Sidecar) newStream(pipelines []pipeline.Pipeline) (*replication.Stream, *questions) {
	qs := newQuestions(s.secret)
	if !database.Pooled(s.o.StreamPool) {
		s.line = database.NewLine(s.o.StreamPool, 5*cmp.Or(s.o.Quick, worker.QuickEnough))
	}
	stream := replication.New(replication.Options{
		Slot: s.o.Slot, Queue: s.queue, DB: s.o.StreamPool, Line: s.line, Dial: s.o.Dial, Log: s.o.Log,
		StopOnLost: s.o.StopOnLost, Failover: s.o.Failover, Repair: s.o.Repair, OnReload: s.Reload,
		OnRequest: s.o.OnRequest,
		Prepare:   s.prepare(), Heartbeat: s.o.Heartbeat,
		Direct: s.direct(), Enqueued: s.enqueued(), Asked: qs.hand, HintKey: walmsg.HintKey(s.secret),
		Keeper: s.keeper, Prioritise: s.prioritise, Owners: s.owners,
	})
	s.setUrgencies(pipelines)
	stream.SetPipelines(pipelines)
	s.mu.Lock()
	s.stream, s.questions = stream, qs
	s.mu.Unlock()
	return stream, qs
}

// begin reads what the sidecar needs to know, and tries again while the server is not there: it may be restarting.
func (s *Sidecar) begin(ctx context.Context) ([]pipeline.Pipeline, error) {
	const shortest, longest = 100 * time.Millisecond, 2 * time.Second
	for pause := shortest; ; pause = min(2*pause, longest) {
		pipelines, err := s.beginOnce(ctx)
		if err == nil || !database.IsTransient(err) {
			return pipelines, err
		}
		s.o.Log.WarnContext(ctx, "not started yet", "error", err)
		if !sleep.For(ctx, pause) {
			return nil, nil
		}
	}
}

func (s *Sidecar) beginOnce(ctx context.Context) ([]pipeline.Pipeline, error) {
	err := s.o.Pool.QueryRow(ctx, "SELECT secret FROM embedsidecar.installation").Scan(&s.secret)
	if err != nil {
		return nil, fmt.Errorf("read the installation: %w", err)
	}
	s.tracer = s.o.Trace.Tracer(s.secret)
	if err := s.o.Pool.QueryRow(ctx, sqlfiles.Query("usual_search_path")).Scan(&s.userPath); err != nil {
		return nil, fmt.Errorf("read the usual search_path: %w", err)
	}
	pipelines, err := s.o.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load pipelines: %w", err)
	}
	s.loaded.Store(&pipelines)
	// Before anybody sees that this sidecar runs: a pipeline that lacks a grant is not one that is being started.
	s.note(ctx, pipelines)
	if err := s.register(ctx); err != nil {
		return nil, err
	}
	s.o.Log = s.o.Log.With("worker_id", s.me().id)
	return pipelines, nil
}

// leave is for how long a sidecar leaves, and why.
type leave struct {
	of  time.Duration
	why error
}

// LeaveQuiet has the registry tell, when Run ends, why the sidecar leaves, and that the next one begins after a time at
// the latest.
func (s *Sidecar) LeaveQuiet(d time.Duration, why error) { s.quiet.Store(&leave{d, why}) }

// farewell gives back leases and leaves the registry.
func (s *Sidecar) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	s.noteSpent(ctx)
	if err := s.queue.GiveBack(ctx, s.me().id); err != nil {
		s.o.Log.WarnContext(ctx, "leases left to run out", "error", err)
		return
	}
	if quiet := s.quiet.Load(); quiet != nil {
		if err := s.noteQuiet(ctx, quiet); err == nil {
			return
		}
	}
	if _, err := s.o.Pool.Exec(ctx, "DELETE FROM embedsidecar.worker WHERE worker_id = $1", s.me().id); err != nil {
		s.o.Log.WarnContext(ctx, "worker left in the registry", "error", err)
	}
}

func (s *Sidecar) sweeps(ctx context.Context) error {
	return s.queue.RunSweeps(ctx, s.o.Heartbeat,
		func(n int) { s.o.Log.WarnContext(ctx, "leases lost", "tasks", n) },
		s.sweepFailed(ctx))
}

func (s *Sidecar) sweepFailed(ctx context.Context) func(error) {
	return func(err error) { s.o.Log.WarnContext(ctx, "sweep failed", "error", err) }
}

// dropLeftovers takes away what removed pipelines have left, should the one who removed them not have come to it.
func (s *Sidecar) dropLeftovers(ctx context.Context) error {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		s.cancelJobs(ctx)
		switch n, err := queue.DropLeftovers(ctx, s.o.Pool); {
		case err != nil && ctx.Err() == nil:
			s.o.Log.WarnContext(ctx, "leftovers of removed pipelines stay for now", "error", err)
		case n > 0:
			s.o.Log.InfoContext(ctx, "leftovers of removed pipelines deleted", "rows", n)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-hourly.C:
		case <-s.left:
		}
	}
}

// housekeeping shows a sign of life and prunes history and the registry. While we do not stream nobody tells us of
// changes to the pipelines, so it also has them reloaded.
func (s *Sidecar) housekeeping(ctx context.Context) error {
	pruned, bounded, counted := time.Time{}, time.Time{}, done{}
	for {
		hourly := time.Since(pruned) > time.Hour
		if hourly {
			if _, err := s.o.Pool.Exec(ctx, "SELECT embedsidecar.prune_audit()"); err != nil && ctx.Err() == nil {
				s.o.Log.WarnContext(ctx, "audit not pruned", "error", err)
			}
			pruned = time.Now()
		}
		all, idle := s.dayNow()
		// An idle sidecar looks now and then.
		if all != counted || hourly || time.Since(bounded) > s.o.History.Keep/6 {
			counted, bounded = all, time.Now()
			if err := s.queue.PruneHistory(ctx, s.o.History); err != nil && ctx.Err() == nil {
				s.o.Log.WarnContext(ctx, "history not pruned", "error", err)
			}
		}
		audit, err := database.Collect(ctx, s.o.Pool, "sign_of_life", pgx.RowTo[bool], pgx.StrictNamedArgs{
			"worker": s.me().id, "succeeded": all.succeeded, "failed": all.failed, "idle": idle,
		})
		if slices.Contains(audit, true) {
			err = s.tellAudit(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.o.Log.WarnContext(ctx, "no sign of life written", "error", err)
		}
		s.noteSpent(ctx)
		if !sleep.For(ctx, s.untilMeasured(time.Now())) {
			return nil
		}
		if stream := s.Stream(); stream == nil || !stream.Streaming.Load() {
			s.Reload()
		}
	}
}

// tellAudit writes to the log what was done of late: anyone who acts by SQL does not reach it. Should the log have an
// entry twice, the server did not hear of the first time.
func (s *Sidecar) tellAudit(ctx context.Context) error {
	type entry struct {
		ID                                                                      int64
		At                                                                      time.Time
		Role, SaidBy, Address, Application, Action, Pipeline, Arguments, Result string
		Changed                                                                 int64
	}
	return database.Transact(ctx, s.o.Pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "SELECT * FROM embedsidecar.tell_audit() ORDER BY 1")
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
		if err != nil {
			return fmt.Errorf("tell of the audit: %w", err)
		}
		for i := range list {
			e := &list[i]
			s.o.Log.InfoContext(ctx, "audit", "audit_id", e.ID, "at", e.At, "role", e.Role, "said_by", e.SaidBy,
				"address", e.Address, "application", e.Application, "action", e.Action, "pipeline", e.Pipeline,
				"arguments", e.Arguments, "result", e.Result, "changed", e.Changed)
		}
		return nil
	})
}

// Book is where calls of embedders are counted that budgets pay for.
func (s *Sidecar) Book() *spend.Book { return s.book }

// Queue returns the sidecar's queue.
func (s *Sidecar) Queue() *queue.Queue { return s.queue }
