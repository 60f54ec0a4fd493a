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

// QuickEnough is how long a pipeline's batches of late may have taken while its changes are worked at once: the stream
// of all pipelines waits for them. The embedder is given up after twice, a statement of the write-back after five times
// that.
const QuickEnough = 50 * time.Millisecond

// worthIt is for how many times QuickEnough the answer to what was given up is waited for all the same.
const worthIt = 100

// embedBriefly asks the embedder for texts that are worked at once. The caller gives it up soon, which is not a
// deadline of the embedder's, and says nothing against it. The answer is remembered when it comes: it may be paid for,
// and the queue asks for it next.
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
	timer := time.NewTimer(2 * w.o.Quick)
	defer timer.Stop()
	err := errTooSlow
	select {
	case a := <-answered:
		return a.results, a.err
	case <-timer.C:
		time.AfterFunc(worthIt*w.o.Quick, cancel)
	case <-ctx.Done():
		err = ctx.Err()
	}
	staysInWork(w.o.InWork, len(texts), answered)
	return nil, err
}

// staysInWork counts rows that were given up until the embedder is done with them.
func staysInWork[T any](of *limit.InWork, rows int, done <-chan T) {
	if of == nil {
		return
	}
	of.Add(rows)
	go func() { <-done; of.Leave(rows) }()
}

// errTooSlow is the end of changes whose embedder takes longer than the stream waits.
var errTooSlow = errors.New("the embedder takes longer than the stream waits for it")

// ofRow is what each row of a batch takes in the database, more or less: a batch of many may take that much longer.
const ofRow = 100 * time.Microsecond

// quick is how long a pipeline's batches take.
type quick struct {
	usual  embed.Usual  // of its own batches
	others *embed.Usual // of all that have the embedder in common: of one without a batch; nil: nobody knows

	mu    sync.Mutex
	until time.Time     // the stream does not wait for the pipeline before
	aside time.Duration // how long that was the last time
}

// How long the stream does not wait for a pipeline that kept it waiting: twice as long each time it does so soon again.
// Else a few slow rows among many quick ones would delay the changes of every other pipeline each time.
const (
	leastAside = time.Second
	mostAside  = time.Minute
)

// keptWaiting notes that the stream waited longer than it should.
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

// note updates the averages; the last batch counts half.
func (q *quick) note(took, embedding time.Duration, rows int) {
	for _, u := range []*embed.Usual{&q.usual, q.others} {
		if u != nil {
			u.Note(max(took-time.Duration(rows)*ofRow, 1), embedding/time.Duration(max(rows, 1)))
		}
	}
}

// enough reports whether a batch of so many rows is expected to take so little time that the stream may wait for it.
// The embedder must not be asked for what it cannot do in that time: it may be paid for each text.
func (q *quick) enough(most time.Duration, rows int) bool {
	batch, text := q.usual.Get()
	if batch == 0 && q.others != nil {
		batch, text = q.others.Get()
	}
	return batch != 0 && batch < most && time.Duration(rows)*text < most
}

// gate lets some in until it is closed, and closes when the last of them has left.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Ready reports whether so many changes would be worked at once: a row has one vector, the pipeline's batches are
// quick, and its embedder does not rest.
func (w *Worker) Ready(changes int) bool {
	// A test may want changes worked at once where the machine has no time for it.
	quick := w.quick.enough(w.o.Quick, changes) && !w.quick.setAside() || failpoint.Hit("worker/taken-for-quick") != nil
	return w.chunks == nil && quick && w.o.Limit.Allows(time.Now(), changes) && w.o.InWork.Free(changes) &&
		w.stats.Rest.Load() == nil && w.o.Service.Rest() == 0
}

// Direct works changes at once, in place of tasks: d tells which of them are done. One statement screens them and looks
// at their rows; over a line one more writes them where vectors have a table of their own. It returns how long it
// waited for the embedder. What goes wrong, or takes long, is left to the queue, which knows how to try again; until
// that has gone well for a while the pipeline is not Ready.
func (w *Worker) Direct(ctx context.Context, d *queue.Direct, changes []queue.Change) (s queue.Screened,
	embedding time.Duration,
) {
	s.Later = changes
	w.gate.mu.RLock()
	defer w.gate.mu.RUnlock()
	if w.gate.closed {
		_ = failpoint.Hit("direct/closed") // the changes are left as they are, whatever it says
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
	if d.Err != nil || len(s.Now) > 0 { // that nothing had changed says nothing of what takes long
		w.quick.note(took, embedding, len(changes))
	}
	w.batchEnded(ctx, d.Work, len(changes), d.Err)
	w.stats.Direct.Add(int64(d.Count()))
	return s, embedding
}

// screen says which changes need no task, and looks at the rows of those that may be worked at once.
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

// atOnce reports whether one statement can write items: vectors, and nothing else, over the line of d.
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

// Lined reports whether changes are worked over a line. Statements there are planned once, for any row: of a table
// whose key says in which partition a row is, that would be over all of them.
func (w *Worker) Lined() bool { return !w.o.Pipeline.Routed() }
