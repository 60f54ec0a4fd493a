package queue

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Direct is the right to work changes at once, without tasks: it lasts while the epoch of who streams them does. It
// notes which of them are done; the others become tasks.
type Direct struct {
	Slot    string
	Epoch   int64
	Timeout time.Duration // of a statement of the write-back: the stream waits for it; 0: none
	Work    *Work
	// Line is a connection of its own (database.Line), on which what is worked takes few statements; nil: they are those
	// of a pool.
	Line database.DB
	Life *time.Time // of the server, when the rows were read; nil: that was over the line, which lasts no longer
	Err  error      // what went wrong on it
	done map[string]bool
}

// Done reports whether the change of a row needs no task any more.
func (d *Direct) Done(key string) bool { return d.done[key] }

// Count is how many rows are done.
func (d *Direct) Count() int { return len(d.done) }

// End notes how changes ended, once that is durable.
func (d *Direct) End(outcomes []Outcome) Finished {
	if d.done == nil {
		d.done = map[string]bool{}
	}
	n := 0
	for i := range outcomes {
		if outcomes[i].Action == Done {
			d.done[outcomes[i].Task.RowKey] = true
			n++
		}
	}
	return Finished{Done: n, Reopened: len(outcomes) - n}
}

// Task returns what a worker works on in place of a leased task.
func (d *Direct) Task(c *Change) Task {
	return Task{
		Lease: Lease{PipelineID: c.PipelineID, Direct: d, Work: d.Work}, RowKey: c.RowKey, Lane: c.Lane, FirstLSN: c.first(),
		LastLSN: c.LSN, CommittedAt: c.CommittedAt, EnqueuedAt: time.Now(),
	}
}

// The verdicts on changes that might do without a task. Whatever else is said of one, it becomes a task.
const (
	ScreenNow  = "now"  // it may be worked at once
	screenDrop = "drop" // it changed nothing
	screenOwn  = "own"  // nor did this one, of a write-back of ours
)

// Screened is what becomes of changes that might do without a task.
type Screened struct {
	Now     []Change // may be worked at once: by the streamer, in the order in which they come
	Later   []Change // to be enqueued
	Own     int      // of write-backs of ours
	Dropped int      // changed nothing
}

// Screen waits a moment for transactions that are in the WAL and not visible yet, a part of what Enqueue waits: usually
// their server processes have a step or two left to do.
const (
	screenPause = 250 * time.Microsecond
	screenPart  = 250
)

// Ask says of changes, no two of one row, what is to become of them: now, drop or task; hidden tells that the
// transaction of some is not visible yet. All of it is seen in one snapshot.
type Ask func(ctx context.Context, changes []Change) (verdicts []string, hidden bool, err error)

// Screen says which changes need no task: those that change nothing, and those of rows that no task names, in
// transactions that everybody sees. Anyone who reads such a row from now on reads it as the change left it, or newer;
// who has read it before holds a lease of a task.
func (q *Queue) Screen(ctx context.Context, changes []Change, ask Ask) (s Screened, err error) {
	changes = Merge(changes)
	var verdicts []string
	deadline := time.Now().Add(q.visibilityTimeout / screenPart)
	for pause := screenPause; ; pause = min(2*pause, visibilityPauseMax) {
		var hidden bool
		if verdicts, hidden, err = ask(ctx, changes); err != nil {
			return Screened{}, fmt.Errorf("screen %d changes: %w", len(changes), err)
		}
		if !hidden || q.waitedInVain.Load() || time.Now().After(deadline) {
			break
		}
		if !sleep.For(ctx, pause) {
			return Screened{}, ctx.Err()
		}
	}
	for i, v := range verdicts {
		switch v {
		case ScreenNow:
			s.Now = append(s.Now, changes[i])
		case screenOwn:
			s.Own++
		case screenDrop:
			s.Dropped++
		default:
			s.Later = append(s.Later, changes[i])
		}
	}
	return s, nil
}

// Work is what is done under one lease, or at once: since when, and how its rows have ended so far.
type Work struct {
	Began time.Time

	mu    sync.Mutex
	ended map[string]int
}

// Note counts rows that have ended.
func (w *Work) Note(outcomes []Outcome) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = map[string]int{}
	}
	for i := range outcomes {
		w.ended[outcomes[i].What]++
	}
}

// Ended returns how many rows have ended, by how they did: embedded, unchanged, failed, ...
func (w *Work) Ended() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ended)
}

// tookMS is how long it has taken so far, in milliseconds, for history; nil: nobody knows.
func (w *Work) tookMS() *int64 {
	if w == nil || w.Began.IsZero() {
		return nil
	}
	ms := time.Since(w.Began).Milliseconds()
	return &ms
}
