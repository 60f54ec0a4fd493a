package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/restart"
	"github.com/embedsidecar/embedsidecar/queue"
)

// A pipeline's changes are worked at once while its batches of late took no longer than this: the stream of all
// pipelines waits for them. The embedder is given up after twice, a statement of the write-back after five times that.
const quickEnough = 50 * time.Millisecond

// reached is a place that a batch comes by on either way, so that a test can choose on which.
func reached(t queue.Task, place string) error {
	if t.Now() {
		return failpoint.Hit("direct/" + place)
	}
	return failpoint.Hit("worker/" + place)
}

// brief bounds for how long a change that is worked at once may wait for what is not the database. That it is
// given up is not a deadline of the embedder's, and says nothing against it.
func (w *Worker) brief(ctx context.Context, t queue.Task) (context.Context, context.CancelFunc) {
	if !t.Now() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(2*w.o.Quick, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// quick is how long a pipeline's batches take.
type quick struct {
	usual atomic.Int64 // nanoseconds, of the last few; 0: none is known
}

// note has half of it be the last batch.
func (q *quick) note(took time.Duration) {
	last := int64(max(took, 1))
	if before := q.usual.Load(); before != 0 {
		last = (before + last) / 2
	}
	q.usual.Store(last)
}

// enough reports whether the next batch is expected to take so little time that the stream may wait for it.
func (q *quick) enough(most time.Duration) bool {
	usual := q.usual.Load()
	return usual != 0 && usual < int64(most)
}

// doorway lets some in until it is closed, and closes when the last of them has left.
type doorway struct {
	mu     sync.RWMutex
	closed bool
}

func (d *doorway) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// Ready reports whether a change would be worked at once: a row has one vector, the pipeline's batches are quick, and
// its embedder does not rest.
func (w *Worker) Ready() bool {
	// A test may want changes worked at once where the machine has no time for it.
	quick := w.quick.enough(w.o.Quick) || failpoint.Hit("worker/taken-for-quick") != nil
	return w.chunks == nil && quick && w.stats.Rest.Load() == nil && w.o.Service.Rest() == 0
}

// Direct works changes at once, in place of tasks: d tells which of them are done. It returns how long it waited for
// the embedder. What goes wrong, or takes long, is left to the queue, which knows how to try again; until that has
// gone well for a while the pipeline is not Ready.
func (w *Worker) Direct(ctx context.Context, d *queue.Direct, changes []queue.Change) (embedding time.Duration) {
	w.door.mu.RLock()
	defer w.door.mu.RUnlock()
	if w.door.closed {
		_ = failpoint.Hit("direct/closed") // the changes are left as they are, whatever it says
		return 0
	}
	began, before := time.Now(), w.embedding.Load()
	d.Timeout, d.Work = 5*w.o.Quick, &queue.Work{Began: began}
	tasks := make([]queue.Task, len(changes))
	for i := range changes {
		tasks[i] = d.Task(&changes[i])
	}
	w.stats.Batches.Add(1)
	took := 8 * w.o.Quick
	working, traces := w.trace(ctx, tasks)
	defer traces.Close()
	err := w.o.Keeper.Guard(working, restart.Direct, func() error { return w.attempt(working, tasks) })
	if err == nil {
		took = time.Since(began)
	}
	w.quick.note(took)
	w.batchEnded(ctx, d.Work, len(tasks), err)
	for i := range changes {
		if d.Done(changes[i].RowKey) {
			w.stats.Direct.Add(1)
		}
	}
	return time.Duration(w.embedding.Load() - before)
}
