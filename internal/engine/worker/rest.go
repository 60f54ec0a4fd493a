package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
)

// restAfter is the number of consecutive texts that must fail, each by itself, before the pipeline rests: they are
// unlikely to all be bad, and a paid embedder charges for them too. A resting pipeline tries one row at a time from a
// random place in the queue, so that adjacent bad rows do not prolong the rest.
const (
	restAfter   = 32
	longestNap  = time.Minute
	betweenLook = 100 * time.Millisecond
)

// nap is the rest state of a pipeline.
type nap struct {
	mu      sync.Mutex
	failed  int // consecutive failed texts, each counted once
	resting bool
	probing bool // a row is being tried
	pause   time.Duration
	until   time.Time
}

// enter returns the delay before the next batch (0: none), and whether that must be a probe of one row.
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

// leave ends a probe, whatever its outcome.
func (n *nap) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probing = false
	n.until = time.Now().Add(n.pause)
}

// note counts the sent texts of one batch. fresh are the bad ones that had not failed before: a few bad rows that are
// retried are no reason to rest. It reports whether a rest began or ended.
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
		if began || n.probing { // batches started before the rest do not prolong it
			n.pause = min(max(2*n.pause, first), longest)
		}
		n.resting = true
		n.until = time.Now().Add(n.pause)
	}
	return began, ended
}

// noteFate counts the outcomes of sent texts, and reports when a rest begins and ends (Stats.Rest).
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
		case !it.sent, it.task.IsDirect() && it.action == broken: // failed direct changes are counted by the retry
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
	w.fate.Lock() // a rest is logged before its end
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
		w.o.Log.InfoContext(ctx, "pipeline resumes", "pipeline", w.o.Pipeline.Name)
	}
}

// met is the last time a lock blocked a write-back, in Unix nanoseconds.
type met struct{ last atomic.Int64 }

func (m *met) note() { m.last.Store(time.Now().UnixNano()) }

// lately reports whether that was within a minute, which is longer than the retry delay of a locked row.
func (m *met) lately() bool { return time.Since(time.Unix(0, m.last.Load())) < time.Minute }
