package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// restAfter is how many texts in a row must fail, each by itself, before the whole pipeline rests: they are hardly
// all bad, and anyone who is paid for texts is paid for those, too. While it rests one row is tried at a time, from
// anywhere in the queue, so that rows that are bad together do not keep it resting.
const (
	restAfter   = 32
	longestNap  = time.Minute
	betweenLook = 100 * time.Millisecond
)

// nap is whether a pipeline rests.
type nap struct {
	mu      sync.Mutex
	failed  int // texts in a row, each once
	resting bool
	probing bool // somebody tries a row
	pause   time.Duration
	until   time.Time
}

// enter says how long to wait before the next batch (0: not at all), and whether that may be one row only, as a probe.
func (n *nap) enter(now time.Time) (wait time.Duration, probe bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.resting:
		return 0, false
	case n.probing || now.Before(n.until):
		return max(n.until.Sub(now), betweenLook), false
	}
	n.probing = true
	return 0, true
}

// leave ends a probe, whatever came of it.
func (n *nap) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probing = false
	n.until = time.Now().Add(n.pause)
}

// note counts texts of one batch that were sent to the embedder, and how they fared: fresh are those of the bad that
// had not failed before, since a few bad rows that are tried again and again are no reason to rest. It reports
// whether the rest began or ended by it.
func (n *nap) note(good, bad, fresh int, first, longest time.Duration) (began, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case good > 0:
		ended = n.resting
		n.failed, n.resting, n.pause = 0, false, 0
	case bad > 0:
		n.failed += fresh
		if n.failed < restAfter {
			return false, false
		}
		began = !n.resting
		if began || n.probing { // batches that were under way when it began do not make it longer
			n.pause = min(max(2*n.pause, first), longest)
		}
		n.resting = true
		n.until = time.Now().Add(n.pause)
	}
	return began, ended
}

// noteFate counts what became of the texts of items, and says when the pipeline begins to rest and when it ends:
// Stats.Rest.
func (w *Worker) noteFate(ctx context.Context, items []item) {
	good, bad, fresh := 0, 0, 0
	reason := ""
	for i := range items {
		it := &items[i]
		class, code := embed.Data, ""
		if it.action == broken {
			class, code = embed.Classify(it.err)
		}
		switch {
		case !it.sent, it.task.IsDirect() && it.action == broken: // of the latter the queue tells, which tries them again
		case it.action == vectorIn || it.action == empty:
			good++
		case it.action == broken && class == embed.Data:
			bad++
			reason = code
			if it.task.Attempt == 0 {
				fresh++
			}
		}
	}
	w.fate.Lock() // a rest that began is told before it is told that it ended
	defer w.fate.Unlock()
	began, ended := w.nap.note(good, bad, fresh, w.o.Retry.Initial, min(longestNap, w.o.Retry.Max))
	switch {
	case began:
		why := fmt.Sprintf("the last %d texts all failed: %s", restAfter, reason)
		w.stats.Rest.Store(&why)
		w.o.Log.WarnContext(ctx, "pipeline rests: its last texts all failed", "pipeline", w.o.Pipeline.Name, "texts",
			restAfter, "code", reason)
	case ended:
		w.stats.Rest.Store(nil)
		w.o.Log.InfoContext(ctx, "pipeline goes on", "pipeline", w.o.Pipeline.Name)
	}
}

// met is when a lock of somebody's was in the way of a write-back last, in Unix nanoseconds.
type met struct{ last atomic.Int64 }

func (m *met) note() { m.last.Store(time.Now().UnixNano()) }

// lately reports whether that was within a while that is longer than a locked row waits for its next try.
func (m *met) lately() bool { return time.Since(time.Unix(0, m.last.Load())) < time.Minute }
