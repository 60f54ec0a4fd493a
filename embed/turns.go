package embed

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"
)

// Share is who has texts embedded, where several share an embedder: each gets calls by its weight, however many texts
// the others have.
type Share struct {
	Name string
	Terms
}

// Terms are what a share has of the embedders. Settings of databases are its fields, and status shows them.
type Terms struct {
	Weight int `json:"weight,omitempty" doc:"Its share of the embedders"`
}

type shareKey struct{}

// WithShare says whose the texts are that are embedded with a context.
func WithShare(ctx context.Context, s Share) context.Context {
	return context.WithValue(ctx, shareKey{}, s)
}

// lone is how many texts a call of a lone change may have.
const lone = 4

// turns lets shares take turns. It is start-time fair queueing: a share that has had much comes behind one that has had
// little, and one that is new waits for the calls under way and not for the backlog of others. When all calls are under
// way, one more may begin that is small, of a share that has none: a lone change waits for nobody, unless another one
// goes before it.
type turns struct {
	mu      sync.Mutex
	free    int // calls that may begin; -1: the one more has, too
	now     float64
	ends    map[string]float64 // by share: when what it has asked for so far would be done
	last    map[string]time.Time
	running map[string]int // calls under way, by share
	queue   waiters
	seq     int
}

// waiter waits for its turn.
type waiter struct {
	share string
	texts int
	start float64
	seq   int
	begun chan struct{} // closed when it is its turn
	at    int           // in the queue; below 0: not there
}

func newTurns(calls int) *turns {
	return &turns{free: max(calls, 1), ends: map[string]float64{}, last: map[string]time.Time{}, running: map[string]int{}}
}

// contended reports whether a share has others beside it: then its calls are small, so that nobody waits long.
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

// take waits for the turn of a share, for a call of so many texts. The function it returns ends the call.
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
	if !waits { // it had begun meanwhile
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

// nextLocked begins what may begin.
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

// waiters are those who wait, the next first. It implements heap.Interface.
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

// ShareOut has the shares that contexts name take turns, so many calls at a time. It is called before the first text.
func (s *Service) ShareOut(calls int) *Service {
	s.turns = newTurns(calls)
	return s
}

// turn waits until it is the turn of the one whom a context names, for at most so many texts. It returns how many they
// are now, and what ends the turn.
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
