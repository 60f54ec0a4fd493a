package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// QuickEnough is the average duration of recent batches up to which a pipeline's changes are processed directly: the
// stream of all pipelines waits for them. The stream waits for the embedder up to twice as long, for a write-back
// statement up to five times.
const QuickEnough = 50 * time.Millisecond

// worthIt times QuickEnough is how long an abandoned embedder call may continue.
const worthIt = 100

// embedBriefly embeds texts of direct changes. The caller stops waiting early, which does not count as an embedder
// timeout. The result is cached when it arrives: it may be paid for, and the queue asks for it next.
func (w *Worker) embedBriefly(ctx context.Context, texts []string) ([]embed.Result, error) {
	type answer struct {
		results []embed.Result
		err     error
	}
	answered := make(chan answer, 1)
	asking, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		var a answer
		a.err = w.o.Keeper.Guard(asking, restart.Direct, func() (err error) {
			a.results, err = w.withinBudget(asking, texts, func() ([]embed.Result, error) {
				return w.o.Service.Embed(asking, embed.Document, texts, false)
			})
			w.countTokens(texts, a.results, false)
			return err
		})
		answered <- a
	}()
	err := errTooSlow
	select {
	case a := <-answered:
		return a.results, a.err
	case <-time.After(2 * w.o.Quick):
		time.AfterFunc(worthIt*w.o.Quick, cancel)
	case <-ctx.Done():
		err = ctx.Err()
	}
	staysInWork(w.o.InWork, len(texts), answered)
	return nil, err
}

// staysInWork counts abandoned rows as in work until the embedder is done with them.
func staysInWork[T any](of *limit.InWork, rows int, done <-chan T) {
	if of == nil {
		return
	}
	of.Add(rows)
	go func() { <-done; of.Leave(rows) }()
}

// errTooSlow means that the embedder takes longer than the stream waits.
var errTooSlow = errors.New("the embedder takes longer than the stream waits for it")

// ofRow is the approximate database time per row, subtracted from the duration of a batch.
const ofRow = 100 * time.Microsecond

// quick tracks how long a pipeline's batches take.
type quick struct {
	usual  embed.Usual  // of its own batches
	others *embed.Usual // of all pipelines with this embedder, used before the first own batch; nil: unknown

	mu    sync.Mutex
	until time.Time     // the stream does not wait for the pipeline before this time
	aside time.Duration // duration of the last exclusion
}

// Limits for how long the stream does not wait for a slow pipeline; the time doubles if it is soon slow again.
// Otherwise a few slow rows would delay the changes of every other pipeline each time.
const (
	leastAside = time.Second
	mostAside  = time.Minute
)

// keptWaiting records that the stream waited too long.
func (q *quick) keptWaiting() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.aside = min(2*q.aside, mostAside); now.Sub(q.until) > 10*q.aside || q.aside == 0 { //nolint:mnd // long ago
		q.aside = leastAside
	}
	q.until = now.Add(q.aside)
}

func (q *quick) setAside() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Now().Before(q.until)
}

// note updates the averages; the last batch has half the weight.
func (q *quick) note(took, embedding time.Duration, rows int) {
	for _, u := range []*embed.Usual{&q.usual, q.others} {
		if u != nil {
			u.Note(max(took-time.Duration(rows)*ofRow, 1), embedding/time.Duration(max(rows, 1)))
		}
	}
}

// enough reports whether a batch of that many rows is expected to be quick enough for the stream. The embedder must not
// get what it cannot answer in time: each text may cost money.
func (q *quick) enough(most time.Duration, rows int) bool {
	batch, text := q.usual.Get()
	if batch == 0 && q.others != nil {
		batch, text = q.others.Get()
	}
	return batch != 0 && batch < most && time.Duration(rows)*text < most
}

// gate admits callers until it is closed; close waits for those inside.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Ready reports whether that many changes would be processed directly: one vector per row, quick batches, and an
// embedder that is not resting.
func (w *Worker) Ready(changes int) bool {
	// A test may need direct processing on a slow machine.
	quick := w.quick.enough(w.o.Quick, changes) && !w.quick.setAside() || failpoint.Hit("worker/taken-for-quick") != nil
	return w.chunks == nil && !w.o.Pipeline.Paid && quick && w.o.Limit.Allows(time.Now(), changes) &&
		w.o.InWork.Free(changes) && w.stats.Rest.Load() == nil && w.o.Service.Rest() == 0
}

// Direct processes changes without tasks; d records which are done. One statement screens them and reads their rows. On
// a Line, one more writes vectors to an embedding table. It returns how long it waited for the embedder. Changes that
// fail or take long are left to the queue, which retries them; the pipeline is then not Ready for a while.
func (w *Worker) Direct(ctx context.Context, d *queue.Direct, changes []queue.Change) (s queue.Screened,
	embedding time.Duration,
) {
	s.Later = changes
	w.gate.mu.RLock()
	defer w.gate.mu.RUnlock()
	if w.gate.closed {
		_ = failpoint.Hit("direct/closed") // the result is ignored: the changes stay as they are
		return s, 0
	}
	if !w.o.InWork.TryEnter(len(changes)) {
		return s, 0
	}
	defer w.o.InWork.Leave(len(changes))
	room, there := w.roomNow(w.most)
	if !there {
		return s, 0
	}
	defer room.release()
	began, before := time.Now(), w.embedding.Load()
	d.Timeout, d.Work = 5*w.o.Quick, &queue.Work{Began: began}
	w.stats.Batches.Add(1)
	d.Err = w.o.Keeper.Guard(ctx, restart.Direct, func() error {
		screened, tasks, items, err := w.screen(ctx, d, changes)
		if err != nil {
			return err
		}
		if s = screened; len(items) == 0 {
			return nil
		}
		w.o.Limit.Spend(time.Now(), false, len(items), 0)
		if err := failpoint.Hit("direct/screened"); err != nil {
			return err
		}
		working, traces := w.trace(ctx, tasks)
		defer traces.Close()
		w.traceRead(working, items, began)
		return w.work(working, items, room)
	})
	embedding, took := time.Duration(w.embedding.Load()-before), time.Since(began)
	if took > 2*w.o.Quick {
		w.quick.keptWaiting()
	}
	if d.Err != nil {
		took = 8 * w.o.Quick
	}
	if d.Err != nil || len(s.Now) > 0 { // unchanged rows say nothing about the duration
		w.quick.note(took, embedding, len(changes))
	}
	w.batchEnded(ctx, d.Work, len(changes), d.Err)
	w.stats.Direct.Add(int64(d.Count()))
	return s, embedding
}

// screen returns which changes need no task, and reads the rows of those to process directly.
func (w *Worker) screen(ctx context.Context, d *queue.Direct, changes []queue.Change) (s queue.Screened,
	tasks []queue.Task, items []item, err error,
) {
	var found rows.Screened
	s, err = w.tasks.Screen(ctx, changes, func(ctx context.Context, changes []queue.Change) (_ []string, _ bool,
		err error,
	) {
		found, err = w.store.screen(ctx, d, changes, w.limit)
		return found.Verdicts, found.Hidden, err
	})
	if err != nil {
		return s, nil, nil, err
	}
	for i := range s.Now {
		tasks = append(tasks, d.Task(&s.Now[i]))
	}
	for i := range found.Rows {
		if found.Verdicts[i] == queue.ScreenNow {
			items = append(items, item{task: tasks[len(items)], row: found.Rows[i]})
		}
	}
	return s, tasks, items, nil
}

// atOnce reports whether one statement can write items: there are only vectors to write, and d has a Line.
func (w *Worker) atOnce(d *queue.Direct, items []item) bool {
	does := func(are ...action) func(it item) bool {
		return func(it item) bool { return slices.Contains(are, it.action) }
	}
	return d != nil && d.Line != nil && w.table.CanWriteAtOnce() && slices.ContainsFunc(items, does(vectorIn)) &&
		!slices.ContainsFunc(items, does(relabel, skip, empty, gone, alias))
}

// writeAtOnce is writeBack in one statement.
func (w *Worker) writeAtOnce(ctx context.Context, d *queue.Direct, items []item) error {
	if err := reached(items[0].task, "before-commit"); err != nil {
		return err
	}
	began := time.Now()
	writes := changeOf(items, w.o.Pipeline.Generation).Write
	held, passed, err := w.store.writeAtOnce(ctx, d, writes, w.entries(items, nil))
	if err != nil {
		return fmt.Errorf("write at once %s: %w", w.describe(len(items)), err)
	}
	if !held {
		return w.overdue(len(items))
	}
	if err := reached(items[0].task, "after-commit"); err != nil {
		return err
	}
	mine, outcomes := w.judge(items, nil, passed)
	w.traceWritten(ctx, mine, began)
	done := d.End(outcomes)
	w.noteEnd(ctx, items, mine, outcomes, done)
	return nil
}

// Lined reports whether direct changes use a Line. There a statement is planned once for all rows, which for a table
// partitioned by its key would scan all partitions.
func (w *Worker) Lined() bool { return !w.o.Pipeline.Routed() }
