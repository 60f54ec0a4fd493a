package model

import (
	"context"
	"slices"
	"sync"
)

// turns decides whose piece runs next. The call with the least left to do goes first, so that a query does not wait
// behind a backfill; each fourth turn goes to the call that came first, so that a backfill moves on under any number
// of queries. Only queries count against queries. When all places are taken, one more call may run beside them, if it
// is small: sharing the CPUs it is answered sooner than after waiting for a large piece to end.
type turns struct {
	places int // runs at a time
	small  int // what the call beside them may have left to do

	mu      sync.Mutex
	free    int        // places that nobody has
	beside  bool       // somebody runs beside the places
	passed  [2]int     // turns that others got since the one that came first had one: large calls, small ones
	waiting []*waiting // in the order the calls came
}

type waiting struct {
	left int       // tokens the call has left, its own measure of size
	came int       // order of the calls
	turn chan turn // receives its turn; has room for it
}

// A turn is the right to run one piece.
type turn struct {
	alone  bool // when it was given, nobody else ran or waited
	beside bool // the places
}

const oldestEvery = 4

func newTurns(places, small int) *turns { return &turns{places: places, small: small, free: places} }

// take waits for a turn, for a call that came as number came and has that many tokens left. The caller gives the turn
// back, unless there is an error, which is the context's.
func (t *turns) take(ctx context.Context, came, left int) (turn, error) {
	if err := ctx.Err(); err != nil {
		return turn{}, err
	}
	w := &waiting{left: left, came: came, turn: make(chan turn, 1)}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.nextLocked()
	t.mu.Unlock()
	select {
	case mine := <-w.turn:
		return mine, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // the turn came at the same moment
		t.giveLocked(<-w.turn)
	}
	return turn{}, ctx.Err()
}

// give gives a turn back.
func (t *turns) give(mine turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveLocked(mine)
}

func (t *turns) giveLocked(mine turn) {
	if mine.beside {
		t.beside = false
	} else {
		t.free++
	}
	t.nextLocked()
}

// nextLocked hands out what is free.
func (t *turns) nextLocked() {
	for t.free > 0 && len(t.waiting) > 0 {
		best, oldest := t.bestLocked()
		size := 0
		if t.waiting[best].left <= pieceTokens+runOverhead { // one piece, and it is done
			size = 1
		}
		if t.passed[size]++; best == oldest || t.passed[size] == oldestEvery {
			best, t.passed = oldest, [2]int{}
		}
		alone := t.free == t.places && !t.beside && len(t.waiting) == 1
		t.free--
		t.handLocked(best, turn{alone: alone})
	}
	if t.beside || len(t.waiting) == 0 {
		return
	}
	if best, _ := t.bestLocked(); t.waiting[best].left <= t.small {
		t.beside = true
		t.handLocked(best, turn{beside: true})
	}
}

// bestLocked returns which of those that wait has the least left, and which came first.
func (t *turns) bestLocked() (best, oldest int) {
	for i, w := range t.waiting {
		if w.came < t.waiting[oldest].came {
			oldest = i
		}
		if b := t.waiting[best]; w.left < b.left || w.left == b.left && w.came < b.came {
			best = i
		}
	}
	return best, oldest
}

func (t *turns) handLocked(i int, mine turn) {
	t.waiting[i].turn <- mine
	t.waiting = slices.Delete(t.waiting, i, i+1)
}
