// Package queue stores the tasks: at most one per pipeline and row, each meaning "process this row". It knows nothing
// about texts or vectors. A change is durable once Enqueue has returned, and a task is removed only together with its
// result.
//
// The queue is in the same database as the data and uses no session state, so it works behind a transaction pooler. All
// timestamps use the database clock.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Errors that callers branch on.
var (
	// ErrEpochLost means that another stream has taken the slot: this one must stop at once.
	ErrEpochLost = errors.New("another sidecar has taken over the slot")
	// ErrLeaseLost means that a lease expired or was taken over: the result must not be written.
	ErrLeaseLost = errors.New("lease lost")
)

// Waiting is the channel that notifies streams of a position that a client waits for. They store the checkpoint once it
// gets there, and check the catalog for changes that are not in the WAL.
const Waiting = "embedsidecar_waiting"

// Requests is the payload, instead of a position, when a pipeline is requested.
const Requests = "requests"

// Lease is a worker's right to the tasks of a batch. It is a separate row, so that leasing does not update tasks.
type Lease struct {
	PipelineID int32
	Place      int64     // place of the lease row
	Token      int64     // chosen by the worker
	Life       time.Time // start of the server's life since it recovered from disk
	// Direct is set instead of the lease row for changes without tasks; nil otherwise.
	Direct *Direct
	Work   *Work // measures the processing; may be nil
}

// Task is a leased task: one row to process.
type Task struct {
	Lease       Lease
	TaskID      int64
	RowKey      string
	Gen         int64 // incremented by every change of the row; Finish compares it
	Seq         int64
	Lane        pipeline.Lane
	Attempt     int16 // failed attempts caused by the row itself
	Losses      int16 // embedder crashes it was part of, and lost leases up to AloneAfter
	FirstLSN    pglogrepl.LSN
	LastLSN     pglogrepl.LSN
	CommittedAt time.Time
	EnqueuedAt  time.Time     // by this host's clock, which may differ from the server's
	Seen        pipeline.Seen // the row as seen by a writer who declared that it needs no new vector; nil: none did
}

// AloneAfter is the number of losses after which a task is leased alone. DeadAfter is the number of embedder crashes
// after which it becomes a dead letter, DeadAfterLost the number of consecutive lost leases. The latter is higher: a
// crashed sidecar does not tell which row is at fault, and in a crash loop innocent rows soon lose five leases.
const (
	AloneAfter    = 2
	DeadAfter     = 5
	DeadAfterLost = 20
)

// Alone reports whether the task must be embedded alone.
func (t Task) Alone() bool { return t.Losses >= AloneAfter }

// IsDirect reports whether the task is a change processed directly: the stream waits for it.
func (t Task) IsDirect() bool { return t.Lease.Direct != nil }

// Queue hands out tasks. It is safe for concurrent use.
type Queue struct {
	db      database.DB
	leasing *semaphore.Weighted // limits concurrent claims

	looking sync.Mutex // held during a look at all pipelines
	mu      sync.Mutex
	cursors map[int32]*cursor
	wakers  map[int32]waker
	told    chan struct{} // signals work in any pipeline; nil: Told was not called
	// leases to give back; without a place if the server's answer was lost
	lost    []Lease
	seen    *seen     // nil: work was reported since
	due     time.Time // when the next known retry is due; zero: none
	dueSet  chan struct{}
	dueFrom time.Time     // server time before which nothing is due
	aside   chan struct{} // signals that something was set aside

	visibilityTimeout time.Duration
	cursorReset       time.Duration
	wholeLook         time.Duration
	waitedInVain      atomic.Bool // the last wait for visibility timed out
}

// waker holds pending signals.
type waker struct {
	live chan struct{} // work for every claimer
	low  chan struct{} // work in the low lane
}

// cursor is where claims in a pipeline's lanes start. Before it there may be a million dead index entries, kept by an
// old snapshot, which every claim would scan. It is looked up every two seconds, starting at places stored in the
// database: this process may outlive the server, and a replacement server may assign the same places again.
type cursor struct {
	place  [4]int64 // claims start after it; -1: only leased tasks are in the lane
	last   [4]int64 // where an empty lane was last read from: new tasks come after it
	top    int64    // highest assigned place
	alone  bool
	reset  time.Time // last look; zero: work was reported at an unknown place
	whole  time.Time // last look at everything
	claims int
	resets int         // number of looks
	opens  int         // number of reports of new work
	again  *time.Timer // triggers a look before the places; nil: none
	idle   bool        // the pipeline had no task when it started, and none was reported since
}

// seen are the pipelines that have tasks, found by one statement for many starting pipelines.
type seen struct {
	at   time.Time
	busy []int32 // sorted
}

// seenFor is how long seen may be used by starting pipelines.
const seenFor = time.Second

// New returns the queue of a database.
func New(db database.DB) *Queue {
	return &Queue{
		db: db, leasing: semaphore.NewWeighted(leasers(db)), cursors: map[int32]*cursor{}, wakers: map[int32]waker{},
		dueSet: make(chan struct{}, 1), aside: make(chan struct{}, 1),
		visibilityTimeout: visibilityTimeout, cursorReset: cursorReset, wholeLook: wholeLook,
	}
}

// leasers returns the limit of concurrent claims. A thousand pipelines have thousands of workers; without a limit,
// other users of the pool would wait behind all of them.
func leasers(db database.DB) int64 {
	conns := int32(16)
	if pool, is := db.(*pgxpool.Pool); is && pool != nil {
		conns = pool.Config().MaxConns
	}
	return max(int64(conns)*3/4, 1) //nolint:mnd // the rest is for other statements
}

// SetVisibilityTimeout sets how long Enqueue waits for a transaction that is in the WAL but not visible yet, before
// changes that may be droppable become tasks. Call it before any other method.
func (q *Queue) SetVisibilityTimeout(d time.Duration) { q.visibilityTimeout = d }

// Told returns a channel that receives whenever a worker would be woken. Call it before any other method.
func (q *Queue) Told() <-chan struct{} {
	q.told = make(chan struct{}, 1)
	return q.told
}

// Who is a kind of claimer.
type Who int

// The kinds of claimers. Express skips the low lane, to serve live changes during a backfill.
const (
	Anyone Who = iota
	Express
)

// Wait returns true when the pipeline may have new work for this kind of claimer, and false when ctx ends first. One of
// several waiting claimers returns; it wakes the next if there is more than it can take.
func (q *Queue) Wait(ctx context.Context, pipelineID int32, who Who) bool {
	q.mu.Lock()
	w := q.wakersLocked(pipelineID)
	q.mu.Unlock()
	low := w.low
	if who == Express {
		low = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.live:
	case <-low:
	}
	return true
}

// Forget drops the cursors because the tables were replaced. No claim may be running.
func (q *Queue) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.cursors)
	q.seen = nil
}

// Wake wakes the workers of pipelines: there may be work in any lane at any place.
func (q *Queue) Wake(pipelineIDs ...int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seen = nil
	for _, id := range pipelineIDs {
		c := q.cursorLocked(id)
		c.reset = time.Time{}
		c.opens++
		q.tellLocked(id, true)
		q.tellLocked(id, false)
	}
}

// WakeNext wakes another worker of a pipeline after one has taken as much as it can.
func (q *Queue) WakeNext(pipelineID int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tellLocked(pipelineID, true)
	q.tellLocked(pipelineID, false)
}

// wakeLanes is Wake for known lanes, each with its pipeline and lowest place. Other lanes are not read.
func (q *Queue) wakeLanes(lanes [][]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range lanes {
		id, lane, place := int32(l[0]), pipeline.Lane(l[1]), l[2] //nolint:gosec // they went there as such
		q.cursorLocked(id).openLocked(lane, place)
		q.tellLocked(id, lane != pipeline.Low)
	}
}

// passOn wakes another claimer for live changes if there may be any: the caller took something else, but its wake may
// have been for them.
func (q *Queue) passOn(pipelineID int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if ok && slices.ContainsFunc(c.place[pipeline.Low+1:], func(place int64) bool { return place >= 0 }) {
		q.tellLocked(pipelineID, true)
	}
}

// cursorLocked returns a pipeline's cursor. It creates one for a pipeline without workers, to record that work was
// reported.
func (q *Queue) cursorLocked(pipelineID int32) *cursor {
	c, ok := q.cursors[pipelineID]
	if !ok {
		c = &cursor{place: [4]int64{-1, -1, -1, -1}}
		q.cursors[pipelineID] = c
	}
	return c
}

// openLocked makes the next claim read a lane that looked empty, at the latest from place. A place may be below the
// last read one: it is assigned before commit.
func (c *cursor) openLocked(lane pipeline.Lane, place int64) {
	c.opens++
	if c.place[lane] < 0 {
		c.place[lane] = c.last[lane]
	}
	c.place[lane] = min(c.place[lane], place-1)
}

// tellLocked wakes one worker of a pipeline. live includes workers that skip the low lane.
func (q *Queue) tellLocked(pipelineID int32, live bool) {
	sleep.Wake(q.told)
	w := q.wakersLocked(pipelineID)
	if live {
		sleep.Wake(w.live)
	} else {
		sleep.Wake(w.low)
	}
}

func (q *Queue) wakersLocked(pipelineID int32) waker {
	w, ok := q.wakers[pipelineID]
	if !ok {
		w = waker{live: make(chan struct{}, 1), low: make(chan struct{}, 1)}
		q.wakers[pipelineID] = w
	}
	return w
}

// Note records what a finished batch leaves: when its first retry is due, so that RunSweeps re-opens it in time, and
// whether tasks were re-opened, which wakes the workers.
func (q *Queue) Note(pipelineID int32, outcomes []Outcome, done Finished) {
	if done.Reopened > 0 {
		q.Wake(pipelineID)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for _, o := range outcomes {
		if at := now.Add(o.Delay); o.Action == Later && (q.due.IsZero() || at.Before(q.due)) {
			q.due = at
			sleep.Wake(q.dueSet)
		}
	}
}

// RunSweeps re-opens due tasks until ctx ends: retries whose delay is over and expired leases. Without a known due time
// it asks the database once per heartbeat. lost receives the number of expired leases and may be nil.
func (q *Queue) RunSweeps(ctx context.Context, heartbeat time.Duration, lost func(n int), failed func(error)) error {
	mended := time.Time{}
	for {
		mend := time.Since(mended) > time.Minute
		if mend {
			mended = time.Now()
		}
		n, next, err := q.sweep(ctx, mend)
		switch {
		case err != nil && ctx.Err() == nil:
			failed(err)
		case n > 0 && lost != nil:
			lost(n)
		}
		if err != nil || next == 0 || next > heartbeat {
			next = heartbeat
		}
		until := time.Now().Add(next)
		for {
			q.mu.Lock()
			if !q.due.IsZero() && q.due.Before(until) {
				until = q.due
			}
			q.mu.Unlock()
			select {
			case <-ctx.Done():
				return nil
			case <-q.dueSet:
				continue
			case <-time.After(max(time.Until(until), 5*time.Millisecond)):
			}
			break
		}
		q.mu.Lock()
		q.due = time.Time{}
		q.mu.Unlock()
	}
}

// sweep does one round. mend also repairs delays that a clock set back made endless, and looks for tasks that a slow
// commit added late. It returns how many rows lost their lease and how long until the next is due (0: unknown).
func (q *Queue) sweep(ctx context.Context, mend bool) (lost int, next time.Duration, err error) {
	args := pgx.StrictNamedArgs{"mend": mend, "dead_after": DeadAfterLost}
	q.mu.Lock()
	if mend {
		q.dueFrom = time.Time{}
	}
	args["due_after"] = q.dueFrom
	q.mu.Unlock()
	var (
		pipelines []int32
		due       *float64
		before    *time.Time
		aside     bool
	)
	batch := &pgx.Batch{}
	database.PlanOnce(q.db, batch, 1)
	batch.Queue(sqlfiles.Query("sweep_tasks"), args).QueryRow(func(row pgx.Row) error {
		return row.Scan(&pipelines, &lost, &due, &before, &aside)
	})
	if err := q.db.SendBatch(ctx, batch).Close(); err != nil {
		return 0, 0, fmt.Errorf("sweep tasks: %w", err)
	}
	q.Wake(pipelines...)
	if aside {
		q.noteAside()
	}
	if due != nil {
		next = max(time.Duration(*due*float64(time.Second)), time.Millisecond)
	}
	if before != nil {
		q.mu.Lock()
		q.dueFrom = *before
		q.mu.Unlock()
	}
	return lost, next, nil
}
