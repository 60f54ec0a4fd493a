// Package queue keeps the tasks: at most one per pipeline and row, each saying only "look at this row". It knows
// nothing of texts or vectors. A change is durable once Enqueue has returned, and a task leaves only with the result
// it stands for.
//
// The queue lives in the database of the data and uses no session state, so it works behind a transaction pooler. All
// clocks are the database's.
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
	// ErrEpochLost means that another streamer has taken the slot: this one must stop at once.
	ErrEpochLost = errors.New("another sidecar has taken over the slot")
	// ErrLeaseLost means that a lease ran out or was taken over: the result must not be written.
	ErrLeaseLost = errors.New("lease lost")
)

// Waiting is the channel on which the streamers of a database are told of a position that somebody waits for: they
// store theirs as soon as it gets there, and look about for what the WAL does not tell.
const Waiting = "embedsidecar_waiting"

// Requests is what is said there in place of a position when a pipeline is asked for.
const Requests = "requests"

// Lease is a worker's right to the tasks of a batch. It is a row of its own, so that tasks are not written when they
// are leased.
type Lease struct {
	PipelineID int32
	Place      int64     // where the row is
	Token      int64     // chosen by the worker
	Life       time.Time // since when the server goes on from what it had on disk
	// Direct is what changes without tasks are held by, in place of the row; nil: the row.
	Direct *Direct
	Work   *Work // what is done under it; nil: nobody wants to know
}

// Task is a leased row's need for a look.
type Task struct {
	Lease       Lease
	TaskID      int64
	RowKey      string
	Gen         int64 // raised by every change of the row; Finish compares it
	Seq         int64
	Lane        pipeline.Lane
	Attempt     int16 // finished tries that failed because of the row itself
	Losses      int16 // embedder deaths it took part in, and lost leases up to AloneAfter
	FirstLSN    pglogrepl.LSN
	LastLSN     pglogrepl.LSN
	CommittedAt time.Time
	EnqueuedAt  time.Time     // by this host's clock, which may be another than the server's
	Seen        pipeline.Seen // the row as its writer saw it, who says that it needs no new vector; nil: it may need one
}

// AloneAfter is the number of losses from which on a task is leased alone. DeadAfter is the number of embedder deaths
// that make it a dead letter, DeadAfterLost that of leases lost in a row: a dead embedder held few rows and at last
// one, a dead sidecar tells nothing, and in a crash loop of it an innocent row is soon held five times.
const (
	AloneAfter    = 2
	DeadAfter     = 5
	DeadAfterLost = 20
)

// Alone reports whether the task must be embedded with nothing beside it.
func (t Task) Alone() bool { return t.Losses >= AloneAfter }

// IsDirect reports whether it stands for a change that is worked at once: the stream waits for it.
func (t Task) IsDirect() bool { return t.Lease.Direct != nil }

// Queue hands out tasks. It is safe for concurrent use.
type Queue struct {
	db      database.DB
	leasing *semaphore.Weighted // those that ask for tasks

	looking sync.Mutex // held while all pipelines are looked at together
	mu      sync.Mutex
	cursors map[int32]*cursor
	wakers  map[int32]waker
	told    chan struct{} // that there is work, whoever works it; nil: nobody asked
	// leases that should be given back, or may be there though the server was not heard: then without a place
	lost    []Lease
	seen    *seen     // nil: somebody has said since that there is work
	due     time.Time // when the next retry known here is due; zero: none
	dueSet  chan struct{}
	dueFrom time.Time     // by the server's clock: before it nothing is due
	aside   chan struct{} // something was set aside

	visibilityTimeout time.Duration
	cursorReset       time.Duration
	wholeLook         time.Duration
	waitedInVain      atomic.Bool // for a transaction to become visible, the last time
}

// waker holds what was told and not heard yet.
type waker struct {
	live chan struct{} // there is work for everybody
	low  chan struct{} // there is work in the low lane
}

// cursor remembers from where on a pipeline's lanes still hold waiting tasks. What lies before may be a million index
// entries of tasks long done: a snapshot that somebody holds keeps them, and every look would walk over them. It is
// looked up every two seconds behind places that the database remembers: this process may outlive the server, and one
// that is put in its place may give them out again.
type cursor struct {
	place  [4]int64 // claims start behind it; -1: nothing waits in the lane but what is leased
	last   [4]int64 // where an empty lane was last read from: what comes is behind it
	top    int64    // places were given out up to here
	alone  bool
	reset  time.Time // when it was looked up last; zero: somebody said that there may be work at whatever place
	whole  time.Time // when all of it was looked at last
	claims int
	resets int         // how often it was looked up anew
	opens  int         // how often somebody said that there may be work
	again  *time.Timer // that ends in a look at what is before the places; nil: none
	idle   bool        // the pipeline had no task when it began to be worked: until somebody says that there is one
}

// seen are the pipelines that have tasks, as one statement has found them for many that begin to be worked.
type seen struct {
	at   time.Time
	busy []int32 // sorted
}

// seenFor is for how long it holds for a pipeline that begins to be worked.
const seenFor = time.Second

// New returns the queue of a database.
func New(db database.DB) *Queue {
	return &Queue{
		db: db, leasing: semaphore.NewWeighted(leasers(db)), cursors: map[int32]*cursor{}, wakers: map[int32]waker{},
		dueSet: make(chan struct{}, 1), aside: make(chan struct{}, 1),
		visibilityTimeout: visibilityTimeout, cursorReset: cursorReset, wholeLook: wholeLook,
	}
}

// leasers returns how many may ask for tasks at a time: a thousand pipelines have thousands of workers, and who needs a
// connection of their pool for something else would wait behind all of them.
func leasers(db database.DB) int64 {
	conns := int32(16)
	if pool, is := db.(*pgxpool.Pool); is && pool != nil {
		conns = pool.Config().MaxConns
	}
	return max(int64(conns)*3/4, 1) //nolint:mnd // the rest is for others
}

// SetVisibilityTimeout says how long Enqueue waits for a transaction that is in the WAL and not visible yet, before
// changes that may well have changed nothing become tasks. It is called before anything else.
func (q *Queue) SetVisibilityTimeout(d time.Duration) { q.visibilityTimeout = d }

// Told returns what holds a word whenever somebody here would be woken for work. It is called before anything else.
func (q *Queue) Told() <-chan struct{} {
	q.told = make(chan struct{}, 1)
	return q.told
}

// Who says what a claimer takes.
type Who int

// The claimers. One that leaves the low lane alone is there for live changes while all others are deep in a backfill.
const (
	Anyone Who = iota
	Express
)

// Wait returns when a pipeline may have new work for this kind of claimer, and false when ctx ends first. Of those
// who wait for the same work one returns: it wakes the next if there is more than it can take.
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

// Forget drops what is remembered of the tables, which are others now. Nobody may be leasing.
func (q *Queue) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.cursors)
	q.seen = nil
}

// Wake tells the workers of pipelines that there may be work, in whatever lane and at whatever place.
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

// WakeNext tells another worker of a pipeline that one has taken as much as it can.
func (q *Queue) WakeNext(pipelineID int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tellLocked(pipelineID, true)
	q.tellLocked(pipelineID, false)
}

// wakeLanes is Wake when it is known where the work is: each a pipeline, a lane and the lowest place in it. Nothing
// else need be asked.
func (q *Queue) wakeLanes(lanes [][]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range lanes {
		id, lane, place := int32(l[0]), pipeline.Lane(l[1]), l[2] //nolint:gosec // they went there as such
		q.cursorLocked(id).openLocked(lane, place)
		q.tellLocked(id, lane != pipeline.Low)
	}
}

// passOn wakes another claimer for live changes, if there may be any: the wake of one that took something else may
// have been for these.
func (q *Queue) passOn(pipelineID int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, ok := q.cursors[pipelineID]
	if ok && slices.ContainsFunc(c.place[pipeline.Low+1:], func(place int64) bool { return place >= 0 }) {
		q.tellLocked(pipelineID, true)
	}
}

// cursorLocked is that of a pipeline, also of one that nobody works yet: it remembers that somebody said that there is
// work.
func (q *Queue) cursorLocked(pipelineID int32) *cursor {
	c, ok := q.cursors[pipelineID]
	if !ok {
		c = &cursor{place: [4]int64{-1, -1, -1, -1}}
		q.cursors[pipelineID] = c
	}
	return c
}

// openLocked has the next claim ask a lane that looked empty, or looks empty to somebody who is asking right now, and
// from no later place than what came: it took that before it was committed.
func (c *cursor) openLocked(lane pipeline.Lane, place int64) {
	c.opens++
	if c.place[lane] < 0 {
		c.place[lane] = c.last[lane]
	}
	c.place[lane] = min(c.place[lane], place-1)
}

// tellLocked wakes one who works a pipeline; live says that the work is also for those who leave the low lane
// alone.
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

// Note remembers what a batch that ended has left: when the first of its retries is due, so that RunSweeps opens it in
// time, and whether something stays open, at whatever place it waits now.
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

// RunSweeps opens again what becomes due, until ctx ends: retries whose pause is over and leases that ran out. When
// nothing is known to become due it asks the database once per heartbeat. lost is called with the number of leases
// found lost; it may be nil.
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
			t := time.NewTimer(max(time.Until(until), 5*time.Millisecond))
			select {
			case <-ctx.Done():
				t.Stop()
				return nil
			case <-q.dueSet:
				t.Stop()
				continue
			case <-t.C:
			}
			break
		}
		q.mu.Lock()
		q.due = time.Time{}
		q.mu.Unlock()
	}
}

// sweep does one round. mend also looks for pauses that a clock which was set back has made endless, and from the
// beginning for what a slow commit may have added late. It returns how many rows lost their lease and how long until
// something becomes due next (0: nothing is known).
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
