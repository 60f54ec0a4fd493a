package model

import (
	"context"
	"slices"
	"sync"
)

// turns decides which piece runs next. The call with the least remaining work goes first, so that a query does not wait
// for a backfill. Every fourth turn goes to the oldest call, so that a backfill continues under any number of queries.
// Small calls only count against small calls. If all places are taken, one additional small call may run: although it
// shares the CPUs, it is answered sooner than after waiting for a large piece.
type turns struct {
	places int // runs at a time
	small  int // limit of the remaining work of an additional call

	mu      sync.Mutex
	free    int        // free places
	beside  bool       // an additional call runs
	passed  [2]int     // turns since the oldest call's last turn: of large calls, of small ones
	waiting []*waiting // in order of arrival
}

type waiting struct {
	left int       // remaining tokens of the call
	came int       // order of arrival
	turn chan turn // receives its turn; buffered
}

// A turn is the right to run one piece.
type turn struct {
	alone  bool // nothing else ran or waited when it was given
	beside bool // the places
}

const oldestEvery = 4

func newTurns(places, small int) *turns { return &turns{places: places, small: small, free: places} }

// take waits for a turn. came is the call's order of arrival, and left its remaining tokens. The caller returns the
// turn with give, unless there is an error, which is the context's.
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

// give returns a turn.
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

// nextLocked hands out free places.
func (t *turns) nextLocked() {
	for t.free > 0 && len(t.waiting) > 0 {
		best, oldest := t.bestLocked()
		size := 0
		if t.waiting[best].left <= pieceTokens+runOverhead { // its last piece
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

// bestLocked returns the waiting call with the least remaining work, and the oldest one.
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
