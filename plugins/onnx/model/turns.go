package model

import (
	"context"
	"slices"
	"sync"
)

// turns decides whose piece runs next. The call with the least left to do goes first, so that a query does not wait behind
// a backfill; each fourth turn goes to the call that came first, so that a backfill moves on under any number of queries. Only
// queries count against queries: one that comes alone waits for no more than the piece that is running.
type turns struct {
	mu      sync.Mutex
	free    int        // places that nobody has
	passed  [2]int     // turns that others got since the one that came first had one: large calls, small ones
	waiting []*waiting // in the order the calls came
}

type waiting struct {
	left int           // tokens the call has left, its own measure of size
	came int           // order of the calls
	turn chan struct{} // closed when it has its place
}

const oldestEvery = 4

func newTurns(places int) *turns { return &turns{free: places} }

// take waits for a place, for a call that came as number came and has that many tokens left. The caller gives the place
// back, unless there is an error, which is the context's.
func (t *turns) take(ctx context.Context, came, left int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &waiting{left: left, came: came, turn: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.nextLocked()
	t.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // the turn came at the same moment
		t.free++
		t.nextLocked()
	}
	return ctx.Err()
}

// give gives a place back.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.nextLocked()
}

// nextLocked hands out the free places.
func (t *turns) nextLocked() {
	for t.free > 0 && len(t.waiting) > 0 {
		oldest, best := 0, 0
		for i, w := range t.waiting {
			if w.came < t.waiting[oldest].came {
				oldest = i
			}
			if b := t.waiting[best]; w.left < b.left || w.left == b.left && w.came < b.came {
				best = i
			}
		}
		size := 0
		if t.waiting[best].left <= pieceTokens+runOverhead { // one piece, and it is done
			size = 1
		}
		if t.passed[size]++; best == oldest || t.passed[size] == oldestEvery {
			best, t.passed = oldest, [2]int{}
		}
		close(t.waiting[best].turn)
		t.waiting = slices.Delete(t.waiting, best, best+1)
		t.free--
	}
}
