// Package worker leases tasks, reads the current rows, embeds what changed and writes the vectors back. It keeps no
// transaction open while it embeds. It writes only where the ledger is unchanged since the row was read, under a valid
// lease or slot epoch. It reads a row only once the change that caused its task is visible. So a vector of an older
// text cannot replace a newer one's, and after any crash the row is processed again. The stream waits for a worker only
// in Direct.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Worker processes one pipeline: Run its tasks, once; Direct changes without tasks, while Run runs.
type Worker struct {
	o     Options
	tasks tasks
	table table
	store store
	// operations on chunks; nil: a row has one vector
	chunks chunkTable
	pages  func() pages
	most   int // maximum bytes of a batch's texts when its rows are first read
	limit  int // bytes of text requested then
	traced trace.Pipeline
	stats  Stats

	restless restless
	nap      nap
	met      met
	pace     pace.Pace
	quick    quick
	left     left
	over     overtime
	gate     gate // of Direct
	// embedding is the total time that all loops have waited for the embedder, in nanoseconds.
	embedding atomic.Int64
	fate      sync.Mutex  // held while outcomes of texts are recorded and logged
	outside   atomic.Bool // a batch is exempt from the budget
}

// Stats returns the live counters.
func (w *Worker) Stats() *Stats { return &w.stats }

// Run works until ctx ends, and finishes the current batches unless hard ends. It returns an error if Keeper gave up
// restarting a loop.
func (w *Worker) Run(ctx, hard context.Context) error {
	defer w.gate.close()
	var g errgroup.Group
	for i := range w.o.Loops {
		who := queue.Anyone
		if i == 0 && w.o.Loops > 1 {
			who = queue.Express // live changes need not wait for a batch of the backfill
		}
		g.Go(func() error {
			return w.o.Keeper.Keep(ctx, restart.Worker, func(ctx context.Context) error { w.loop(ctx, hard, who); return nil })
		})
	}
	return g.Wait()
}

// Delays of a loop: after a database error, while a change is in the WAL but not visible yet, and between batches that
// are not full.
const (
	firstPause      = time.Millisecond
	visibilityPause = 250 * time.Millisecond
	firstErrorPause = 100 * time.Millisecond
	errorPause      = time.Second
	parkedPause     = 10 * time.Second // for tasks whose pipeline does not fit its table
	longestRest     = 50 * time.Millisecond
	heldPause       = time.Second            // while a limit of rows or tokens per second holds work back
	outrankedPause  = 250 * time.Millisecond // for a backfill while one of higher priority is running
)

// rank returns the rank of the pipeline's backfill among others.
func (w *Worker) rank() int { return min(int(w.o.Pipeline.Priority), embed.Ranks-1) }

// loop works until ctx ends. It waits for the embedder, for room among the rows in work and for the limits, then calls
// once. Without tasks it waits to be woken.
func (w *Worker) loop(ctx, hard context.Context, who queue.Who) {
	errorDelay, hiddenDelay, full := firstErrorPause, firstPause, false
	for ctx.Err() == nil {
		// At most a second: a successful query ends the rest for all.
		if rest := w.o.Service.Rest(); rest > 0 {
			sleep.For(ctx, min(rest, time.Second))
			continue
		}
		wait, probe := w.nap.enter(time.Now())
		if wait > 0 {
			sleep.For(ctx, min(wait, time.Second))
			continue
		}
		if rest := w.pace.Rest(time.Now(), longestRest); rest > 0 && !full {
			if !sleep.For(ctx, rest) {
				return
			}
		}
		rows := w.o.BatchRows
		if probe {
			rows = 1
		}
		places, last, err := w.o.InWork.Enter(ctx, func() int { return w.urgency(who) }, rows)
		if err != nil {
			return
		}
		began, embedding := time.Now(), w.embedding.Load()
		as := who
		if who == queue.Anyone && (last || w.o.Service.Outranked(ctx, w.rank())) {
			as = queue.Express // a backfill waits for one of higher priority, live changes do not
		}
		grant, as := w.grant(as, probe, places)
		w.o.InWork.Leave(places - grant.Rows)
		if grant.Rows == 0 {
			pause := min(grant.Wait, heldPause)
			sleep.For(ctx, sleep.Between(pause/2, pause))
			continue
		}
		n, err := w.once(ctx, hard, as, probe, &grant, nil)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case w.spent(err):
			sleep.For(ctx, sleep.Between(heldPause/2, heldPause))
			continue
		case err != nil:
			w.o.Log.WarnContext(ctx, "batch not finished", "pipeline", w.o.Pipeline.Name, "error", quiet(err))
			sleep.For(ctx, errorDelay)
			errorDelay = min(2*errorDelay, errorPause)
			continue
		case n > 0:
			errorDelay, hiddenDelay = firstErrorPause, firstPause
			if full = n >= w.o.BatchRows; !full {
				w.pace.Spend(time.Since(began)-time.Duration(w.embedding.Load()-embedding), time.Now())
			}
			continue
		}
		full = false
		if as != who {
			sleep.For(ctx, outrankedPause)
			continue
		}
		if w.tasks.MostUrgent(w.o.Pipeline.ID, who) >= 0 {
			// In the WAL but not visible to us yet, or just leased by another loop: retry soon.
			sleep.For(ctx, hiddenDelay)
			hiddenDelay = min(2*hiddenDelay, visibilityPause)
			continue
		}
		hiddenDelay = firstPause
		if !w.tasks.Wait(ctx, w.o.Pipeline.ID, who) {
			return
		}
	}
}

// urgency returns the rank of a loop waiting to have rows in work: that of its most urgent row. A loop for live changes
// never ranks as bulk work.
func (w *Worker) urgency(who queue.Who) int {
	rank := int(w.tasks.MostUrgent(w.o.Pipeline.ID, who))
	if who == queue.Express {
		rank = max(rank, int(pipeline.Normal))
	}
	return rank
}

// spent reports whether a budget ended a batch, and calls Spent if the budget is used up.
func (w *Worker) spent(err error) bool {
	spent, is := errors.AsType[*spend.SpentError](err)
	if is && spent.Ended && w.o.Spent != nil {
		w.o.Spent()
	}
	return is
}

// once leases and finishes one batch, or one row as a probe; keys: of these rows. It releases the places of its rows
// and returns the number of tasks.
func (w *Worker) once(ctx, hard context.Context, who queue.Who, probe bool, grant *limit.Grant, keys []string) (int,
	error,
) {
	rows := grant.Rows
	held := rows
	defer func() { w.o.InWork.Leave(held) }() // also after a panic
	defer grant.Done()
	if probe {
		defer w.nap.leave()
	}
	// Stopping the worker must not cancel the statement: it may have leased tasks that nobody would know of.
	tasks, err := w.tasks.Lease(hard, queue.Claim{
		PipelineID: w.o.Pipeline.ID, Generation: w.o.Pipeline.Generation, Fingerprint: w.o.Pipeline.Fingerprint,
		Who: who, Worker: w.o.ID, Max: rows,
		Lease:    w.o.Lease,
		Anywhere: probe, Strict: w.o.InWork.Sequential(), Keys: keys,
	})
	w.o.InWork.Leave(rows - len(tasks))
	held = len(tasks)
	w.leased(grant, tasks, who == queue.Anyone && !probe)
	if err == nil || unfits(err) {
		w.stats.Refused.Store(refusedWords(err))
	}
	if err != nil || len(tasks) == 0 {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, w.giveBack(hard, tasks[0].Lease)
	}
	if len(tasks) == rows {
		w.tasks.WakeNext(w.o.Pipeline.ID) // there may be more for another loop
	}
	if tasks[0].Lane == pipeline.Low {
		defer w.o.Service.Begin(hard, w.rank())()
	}
	w.stats.Busy.Add(1)
	w.stats.Batches.Add(1)
	defer w.stats.Busy.Add(-1)
	lease := tasks[0].Lease
	stop := w.keepLease(hard, lease)
	began, before := time.Now(), w.embedding.Load()
	working, traces := w.trace(hard, tasks)
	defer traces.Close()
	err = w.o.Keeper.Guard(working, restart.Worker, func() error { return w.process(working, tasks) })
	if _, is := errors.AsType[*restart.Error](err); is {
		err = w.panicked(working, tasks)
	}
	stop()
	w.quick.note(time.Since(began), time.Duration(w.embedding.Load()-before), len(tasks))
	w.batchEnded(hard, lease.Work, len(tasks), err)
	if err == nil && keys == nil {
		return len(tasks), nil
	}
	// No row is at fault: give the batch back unchanged. A lost lease may still exist: after a change of the pipeline
	// it protects nothing, but its tasks would wait until it expires.
	if giveErr := w.giveBack(hard, lease); giveErr != nil {
		w.o.Log.DebugContext(hard, "lease not given back yet", "place", lease.Place, "error", giveErr)
	}
	if errors.Is(err, queue.ErrLeaseLost) {
		w.stats.Lost.Add(1)
		return len(tasks), nil
	}
	return len(tasks), err
}

// grant takes what the limits per second allow for the next batch of up to rows rows. A limited backfill does not delay
// live changes.
func (w *Worker) grant(as queue.Who, probe bool, rows int) (limit.Grant, queue.Who) {
	now := time.Now()
	if probe { // an occasional single row
		return w.o.Limit.Grant(1), as
	}
	grant := w.o.Limit.Take(now, as == queue.Anyone, rows)
	if grant.Rows > 0 || as != queue.Anyone {
		return grant, as
	}
	w.stats.Held.Store(&grant.Bound)
	if live := w.o.Limit.Take(now, false, rows); live.Rows > 0 {
		grant = live
	}
	return grant, queue.Express
}

// leased records how much of its grant a batch used, and whether a limit kept it from taking more. A claim of anything
// has seen all lanes.
func (w *Worker) leased(grant *limit.Grant, tasks []queue.Task, anything bool) {
	granted := grant.Rows
	grant.Leased(len(tasks), len(tasks) > 0 && tasks[0].Lane == pipeline.Low)
	switch {
	case grant.Bound != "" && len(tasks) == granted:
		w.stats.Held.Store(&grant.Bound)
	case anything:
		w.stats.Held.Store(nil)
	}
}

// batchEnded logs the end of a batch at debug level, one line each.
func (w *Worker) batchEnded(ctx context.Context, work *queue.Work, rows int, err error) {
	w.stats.LastBatch.Store(time.Now().UnixNano())
	if work == nil || !w.o.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.String("pipeline", w.o.Pipeline.Name), slog.Int("rows", rows),
		slog.Float64("took_seconds", time.Since(work.Began).Seconds()),
	}
	ended := work.Ended()
	for _, what := range slices.Sorted(maps.Keys(ended)) {
		attrs = append(attrs, slog.Int(what, ended[what]))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", quiet(err)))
	}
	w.o.Log.LogAttrs(ctx, slog.LevelDebug, "batch ended", attrs...)
}

// giveBack ends a lease, even after ctx has ended.
func (w *Worker) giveBack(ctx context.Context, lease queue.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return w.tasks.GiveBackLease(ctx, lease)
}

// keepLease extends a lease until the returned function is called.
func (w *Worker) keepLease(ctx context.Context, lease queue.Lease) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep.For(ctx, w.o.Lease/3) {
			err := w.o.Keeper.Guard(ctx, restart.Worker, func() error { return w.tasks.Extend(ctx, lease, w.o.Lease) })
			if err != nil && ctx.Err() == nil {
				w.o.Log.WarnContext(ctx, "lease not extended", "pipeline", w.o.Pipeline.Name, "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (w *Worker) describe(n int) string {
	return fmt.Sprintf("%d rows of %s", n, w.o.Pipeline.Source())
}
