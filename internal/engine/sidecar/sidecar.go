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
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/walmsg"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Options configure a Sidecar.
type Options struct {
	worker.Work

	Slot       string
	Instance   string        // name in the worker registry
	Host       string        // host name in the worker registry
	Version    string        // of the program
	Pool       *pgxpool.Pool // for queue and tables; may go through a pooler
	StreamPool *pgxpool.Pool // direct connection to the server, for the stream; needs two connections
	Dial       func(ctx context.Context) (*pgconn.PgConn, error)
	Load       func(ctx context.Context) ([]pipeline.Pipeline, error) // returns the slot's current pipelines
	// OnRequest is called when a notification says that a pipeline is requested; may be nil.
	OnRequest func()
	Forget    func() // drops what Load has cached; may be nil
	// recreates a missing publication if the role may; may be nil
	Repair func(ctx context.Context) error
	// Embedder returns the embedder of a pipeline. Pipelines that share one must get the same value, comparable with
	// ==; a text is then embedded once for all of them.
	Embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	// Reranker returns the model that reranks searches of a pipeline; "": none.
	Reranker func(pipeline string) string
	// Service returns the service of an embedder shared with other sidecars of the process; nil: none are shared.
	Service func(e embed.Embedder) *embed.Service
	Budget  *worker.Budget // of texts in memory, for all sidecars of the process; nil: its own
	Log     *slog.Logger

	Disabled     bool                // master switch: changes are queued, nothing is embedded
	NoStream     bool                // only process the queue
	NoWork       bool                // only fill the queue
	StopOnLost   bool                // refuse instead of recreating a lost slot
	Failover     bool                // create slots with failover (PostgreSQL 17+)
	History      queue.History       // limits of history; zero: queue.DefaultHistory
	Heartbeat    time.Duration       // 0: 10 s
	DrainTimeout time.Duration       // for current batches at shutdown; 0: pipeline.DefaultDrainTimeout
	Redact       func(string) string // removes passwords from stored errors; nil: no change
	CacheBytes   int64               // cached vectors per model; 0: pipeline.DefaultCacheBytes
	// wait for a commit to become visible, before possibly unchanged rows become tasks; 0: 1 s
	VisibilityTimeout time.Duration
	NoDirect          bool // every change goes through the queue
	Fresh             func(p *pipeline.Pipeline, d time.Duration)
	Price             func(p *pipeline.Pipeline) pipeline.Price // of the pipeline's model; nil: no prices
	ModelBudget       func(model string) pipeline.Budget        // nil: models have no budgets
	Trace             *trace.Provider                           // nil: no traces
}

// Sidecar is one run of embedsidecar; Run may be called once.
type Sidecar struct {
	o         Options
	queue     *queue.Queue
	budget    *worker.Budget // of texts in memory
	overtime  *rows.Overtime // of the pool
	book      *spend.Book    // accounts for budgets
	stream    *replication.Stream
	line      *database.Line // connection for the stream's changes; nil: a pool is used
	questions *questions     // texts that sessions asked for; nil before Run
	reload    chan struct{}
	scanned   chan struct{}   // signals that changes requested scans
	told      <-chan struct{} // signals work for other processes
	keeper    *restart.Keeper
	broken    chan error // a worker loop could not be restarted

	registered atomic.Pointer[registration]
	quiet      atomic.Pointer[leave]               // nil: not a temporary exit
	loaded     atomic.Pointer[[]pipeline.Pipeline] // last loaded; nil: not loaded yet
	secret     []byte
	urgencies  map[int32]*worker.Urgency // of pipelines whose rows specify their lane
	// the last wait for visible commits of joined rows timed out
	ownersInVain atomic.Bool
	slow         slowOwners    // used by the stream
	tracer       *trace.Tracer // nil: no traces
	userPath     string

	refreshing sync.Mutex // keeps an older load from replacing a newer one

	mu       sync.Mutex
	day      day
	spent    map[int32]spent // of stopped workers, by pipeline: not stored yet
	services map[pipeline.ModelName]*embed.Service
	shared   map[embed.Embedder]*embed.Service // the same services by embedder
	running  map[int32]*running
	stopped  map[int32]time.Time // stop time of pipelines with unfinished work
	states   []State

	waiting   map[string]health.Problem // last logged problems of waiting pipelines; used by the supervisor
	described descriptions              // used by the supervisor
	stopping  sync.WaitGroup            // stopped workers that finish their work
	left      chan struct{}             // signals that pipelines were removed
	progress  chan struct{}             // signals that a waiting pipeline may be able to start
	streamed  streamed                  // counters stored so far; used by housekeeping, then by farewell
	storing   *storing                  // a write with unknown result; used by the same
}

// running is a pipeline that is being processed.
type running struct {
	pipeline pipeline.Pipeline
	service  *embed.Service
	worker   *worker.Worker
	cancel   context.CancelFunc
	done     chan struct{}
	scan     chan struct{}
	counted  spent // costs that were stored or are about to be
	told     done  // counts included in the day
}

// State is the state of one pipeline.
type State struct {
	Pipeline pipeline.Pipeline
	Worker   *worker.Stats // nil unless it is running
	Service  *embed.Stats
	Problem  *health.Problem // why it is not processed, or not successfully; nil: it is

	service *embed.Service
}

// Reason describes why the pipeline is not processed, or not successfully; "": it is.
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
	o.Budget = cmp.Or(o.Budget, worker.NewBudget(0))
	s := &Sidecar{
		o: o, queue: queue.New(o.Pool), reload: make(chan struct{}, 1), scanned: make(chan struct{}, 1),
		services: map[pipeline.ModelName]*embed.Service{}, shared: map[embed.Embedder]*embed.Service{},
		running: map[int32]*running{}, stopped: map[int32]time.Time{}, progress: make(chan struct{}, 1),
		left:    make(chan struct{}, 1),
		spent:   map[int32]spent{},
		waiting: map[string]health.Problem{},
		budget:  o.Budget, overtime: rows.NewOvertime(o.Pool),
		keeper: restart.New(o.Log),
		broken: make(chan error, 1),
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

// Panics returns how often the loops of a part have panicked.
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

// WorksOnly reports whether this sidecar never reads the slot.
func (s *Sidecar) WorksOnly() bool { return s.o.NoStream }

// States returns the current states of the pipelines.
func (s *Sidecar) States() []State {
	states := slices.Clone(s.applied())
	for i := range states {
		states[i].Problem = s.problemOf(&states[i])
	}
	return states
}

// applied returns the states as last applied. They are immutable, so a thousand need not be copied every second.
func (s *Sidecar) applied() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states
}

// Pipelines returns the last loaded pipelines, running or not; known is false before the first load.
func (s *Sidecar) Pipelines() (list []pipeline.Pipeline, known bool) {
	loaded := s.loaded.Load()
	if loaded == nil {
		return nil, false
	}
	return slices.Clone(*loaded), true
}

// Run works until ctx ends, then finishes the current batches, gives back leases and confirms the durable position. It
// returns nil when ctx ended, or the error that ended it.
func (s *Sidecar) Run(ctx context.Context) error {
	pipelines, err := s.begin(ctx)
	if ctx.Err() != nil {
		return nil // stopped, whatever error that caused
	}
	if err != nil {
		return err
	}
	// Current work may continue after ctx for a while; hard ends it.
	hard, cancelHard := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelHard()
	stopTimer := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(s.o.DrainTimeout):
			s.o.Log.WarnContext(hard, "drain timeout: canceling the current batches and giving back their tasks", "timeout",
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
	// Start these loops one after another, so that they share a connection instead of opening one each.
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
		first = nil // a restarted loop loads them
		return s.supervise(ctx, hard, known)
	})
	err = g.Wait()
	s.farewell(hard)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// newStream creates the stream, and the queue for the questions that it receives.
func (s *Sidecar) newStream(pipelines []pipeline.Pipeline) (*replication.Stream, *questions) {
	qs := newQuestions(s.secret)
	if !database.Pooled(s.o.StreamPool) {
		s.line = database.NewLine(s.o.StreamPool, 5*cmp.Or(s.o.Quick, worker.QuickEnough))
	}
	stream := replication.New(replication.Options{
		Slot: s.o.Slot, Queue: s.queue, DB: s.o.StreamPool, Line: s.line, Dial: s.o.Dial, Log: s.o.Log,
		StopOnLost: s.o.StopOnLost, Failover: s.o.Failover, Repair: s.o.Repair, OnReload: s.Reload,
		OnScan: func() { sleep.Wake(s.scanned) }, OnRequest: s.o.OnRequest,
		Prepare: s.prepare(), Heartbeat: s.o.Heartbeat,
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

// begin loads what the sidecar needs. It retries while the server is unavailable, for example restarting.
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
	// Before registering: nobody should see a pipeline that lacks a grant as starting.
	s.note(ctx, pipelines)
	if err := s.register(ctx); err != nil {
		return nil, err
	}
	s.o.Log = s.o.Log.With("worker_id", s.me().id)
	return pipelines, nil
}

// leave is a temporary exit: for how long, and why.
type leave struct {
	of  time.Duration
	why error
}

// LeaveQuiet makes Run leave a note in the registry when it ends: why the sidecar leaves, and when the next one starts
// at the latest.
func (s *Sidecar) LeaveQuiet(d time.Duration, why error) { s.quiet.Store(&leave{d, why}) }

// farewell gives back leases and removes this sidecar from the registry.
func (s *Sidecar) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	s.noteSpent(ctx)
	if err := s.queue.GiveBack(ctx, s.me().id); err != nil {
		s.o.Log.WarnContext(ctx, "leases not given back: they will expire", "error", err)
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

// dropLeftovers deletes what removed pipelines have left, if the command that removed them did not finish.
func (s *Sidecar) dropLeftovers(ctx context.Context) error {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		s.cancelJobs(ctx)
		switch n, err := queue.DropLeftovers(ctx, s.o.Pool); {
		case err != nil && ctx.Err() == nil:
			s.o.Log.WarnContext(ctx, "leftovers of removed pipelines not deleted yet", "error", err)
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

// housekeeping writes heartbeats and prunes history and the registry. Without streaming there are no notifications of
// pipeline changes, so it also reloads them.
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
		// An idle sidecar prunes rarely.
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
			s.o.Log.WarnContext(ctx, "worker heartbeat not written", "error", err)
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

// tellAudit writes recent audit entries to the log, which SQL users cannot alter. An entry may be logged twice if the
// commit is lost.
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
			return fmt.Errorf("log the audit: %w", err)
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

// Book returns the book that accounts for budgets.
func (s *Sidecar) Book() *spend.Book { return s.book }
