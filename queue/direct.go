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

// Direct is the right to process changes without tasks. It is valid as long as the epoch of the stream. It records
// which rows are done; the others become tasks.
type Direct struct {
	Slot    string
	Epoch   int64
	Timeout time.Duration // statement timeout of the write-back, which the stream waits for; 0: none
	Work    *Work
	// Checkpoint is when the stream last enqueued anything before the rows were read over Line.
	Checkpoint string
	// Line is a dedicated connection (database.Line) with cheaper statements; nil: the pool is used.
	Line database.DB
	Life *time.Time // start of the server's life when the rows were read; nil: they were read over Line
	Err  error      // error on Line
	done map[string]bool
}

// Done reports whether the row's change needs no task.
func (d *Direct) Done(key string) bool { return d.done[key] }

// Count returns how many rows are done.
func (d *Direct) Count() int { return len(d.done) }

// End records the outcomes of changes, once they are durable.
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

// Task returns a task for a change that has none, for the worker to process.
func (d *Direct) Task(c *Change) Task {
	return Task{
		Lease: Lease{PipelineID: c.PipelineID, Direct: d, Work: d.Work}, RowKey: c.RowKey, Lane: c.Lane, FirstLSN: c.first(),
		LastLSN: c.LSN, CommittedAt: c.CommittedAt, EnqueuedAt: time.Now(),
	}
}

// The verdicts on changes that may need no task. A change with any other verdict becomes a task.
const (
	ScreenNow  = "now"  // may be processed directly
	screenDrop = "drop" // changed nothing
	screenOwn  = "own"  // changed nothing: one of our own write-backs
)

// Screened is the result of screening changes.
type Screened struct {
	Now     []Change // may be processed directly, by the stream
	Later   []Change // to be enqueued
	Own     int      // our own write-backs
	Dropped int      // changed nothing
}

// Screen waits briefly for transactions that are in the WAL but not visible yet, a fraction of Enqueue's timeout:
// usually their backends are about to finish.
const (
	screenPause = 250 * time.Microsecond
	screenPart  = 250
)

// Ask returns a verdict for each change: now, own, drop or task. No two changes are of one row. hidden reports whether
// some transactions are not visible yet. All verdicts come from one snapshot.
type Ask func(ctx context.Context, changes []Change) (verdicts []string, hidden bool, err error)

// Screen returns which changes need no task: those that change nothing, and those of visible transactions whose row has
// no task. Later readers of such a row see this change or a newer one; an earlier reader holds the lease of a task.
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

// Work measures the processing of one lease or direct batch: its start, and the outcomes of its rows.
type Work struct {
	Began time.Time

	mu    sync.Mutex
	ended map[string]int
}

// Note counts the outcomes of rows.
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

// Ended returns how many rows ended, by outcome: embedded, unchanged, failed, ...
func (w *Work) Ended() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ended)
}

// tookMS returns the elapsed milliseconds for history; nil: unknown.
func (w *Work) tookMS() *int64 {
	if w == nil || w.Began.IsZero() {
		return nil
	}
	ms := time.Since(w.Began).Milliseconds()
	return &ms
}
