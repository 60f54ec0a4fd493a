package embed

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"
)

// lone is the limit of texts in a call for a single change.
const lone = 4

// turns schedules the calls of shares by start-time fair queueing: shares that have used less go first. A new share
// waits for the calls under way, not for the backlog of others. If all calls are under way, one additional small call
// may begin for a share without any, so that a single change does not wait.
type turns struct {
	mu      sync.Mutex
	free    int // free calls; -1: the additional call runs, too
	now     float64
	ends    map[string]float64 // by share: virtual finish time of its requests so far
	last    map[string]time.Time
	running map[string]int // calls under way, by share
	queue   waiters
	seq     int
}

// waiter is a call that waits for its turn.
type waiter struct {
	share string
	texts int
	start float64
	seq   int
	begun chan struct{} // closed when its turn comes
	at    int           // index in the queue; below 0: not queued
}

func newTurns(calls int) *turns {
	return &turns{free: max(calls, 1), ends: map[string]float64{}, last: map[string]time.Time{}, running: map[string]int{}}
}

// contended reports whether other shares are active: then calls are small, so that no share waits long.
func (t *turns) contended(s Share) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, at := range t.last {
		switch {
		case time.Since(at) > askedLately:
			delete(t.last, name)
			if t.ends[name] <= t.now {
				delete(t.ends, name)
			}
		case name != s.Name:
			return true
		}
	}
	return false
}

// take waits for the turn of a share for a call of texts texts. The returned function ends the call.
func (t *turns) take(ctx context.Context, s Share, texts int) (leave func(), err error) {
	t.mu.Lock()
	w := &waiter{
		share: s.Name, texts: texts, start: max(t.now, t.ends[s.Name]), seq: t.seq, begun: make(chan struct{}), at: -1,
	}
	t.seq++
	t.ends[s.Name] = w.start + float64(texts)/float64(max(s.Weight, 1))
	t.last[s.Name] = time.Now()
	heap.Push(&t.queue, w)
	t.nextLocked()
	t.mu.Unlock()
	select {
	case <-w.begun:
		return func() { t.leave(s.Name) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	waits := w.at >= 0
	if waits {
		heap.Remove(&t.queue, w.at)
	}
	t.mu.Unlock()
	if !waits { // it has begun meanwhile
		t.leave(s.Name)
	}
	return nil, &Error{Class: Transient, Code: canceled, Err: fmt.Errorf("wait for a turn: %w", context.Cause(ctx))}
}

func (t *turns) leave(share string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.running[share]--; t.running[share] == 0 {
		delete(t.running, share)
	}
	t.nextLocked()
}

// nextLocked starts the calls that may begin.
func (t *turns) nextLocked() {
	for t.free > 0 && len(t.queue) > 0 {
		t.beginLocked(t.queue[0])
	}
	if t.free != 0 {
		return
	}
	var beside *waiter
	for i, w := range t.queue {
		if w.texts <= lone && t.running[w.share] == 0 && (beside == nil || t.queue.Less(i, beside.at)) {
			beside = w
		}
	}
	if beside != nil {
		t.beginLocked(beside)
	}
}

func (t *turns) beginLocked(w *waiter) {
	heap.Remove(&t.queue, w.at)
	t.now = max(t.now, w.start)
	t.free--
	t.running[w.share]++
	close(w.begun)
}

// waiters is a heap of waiting calls, the next one first. It implements heap.Interface.
type waiters []*waiter

func (q waiters) Len() int { return len(q) }

func (q waiters) Less(a, b int) bool {
	return cmp.Or(cmp.Compare(q[a].start, q[b].start), cmp.Compare(q[a].seq, q[b].seq)) < 0
}

func (q waiters) Swap(a, b int) {
	q[a], q[b] = q[b], q[a]
	q[a].at, q[b].at = a, b
}

// Push implements heap.Interface.
func (q *waiters) Push(x any) {
	if w, ok := x.(*waiter); ok {
		w.at = len(*q)
		*q = append(*q, w)
	}
}

// Pop implements heap.Interface.
func (q *waiters) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	w.at = -1
	*q = (*q)[:last]
	return w
}

// ShareOut makes the contexts' shares take turns, with a limit of concurrent calls. Call it before the first text.
func (s *Service) ShareOut(calls int) *Service {
	s.turns = newTurns(calls)
	return s
}

// turn waits for the turn of the context's share, for at most texts texts. It returns the allowed number of texts, and
// a function that ends the turn.
func (s *Service) turn(ctx context.Context, texts int) (n int, leave func(), err error) {
	share, named := ctx.Value(shareKey{}).(Share)
	if s.turns == nil || !named {
		return texts, func() {}, nil
	}
	if s.turns.contended(share) {
		texts = min(texts, portion)
	}
	leave, err = s.turns.take(ctx, share, texts)
	return texts, leave, err
}
