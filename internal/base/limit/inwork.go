package limit

import (
	"context"
	"slices"
	"sync"
	"time"
)

// InWork bounds how many rows of all workers of a process are in work at once. Who waits is let in by rank and, of the
// same rank, in the order in which they came. Of two places or more, those of rank 0 or below, bulk work, leave one to
// the others. It is safe for concurrent use; nil bounds nothing.
type InWork struct {
	mu      sync.Mutex
	most    int // 0: no limit
	rows    int // in work
	waiting []*waiter
}

// rankPause is how often who waits looks at his rank.
const rankPause = 100 * time.Millisecond

// waiter is one who waits for places.
type waiter struct {
	rank func() int
	rows int
	let  chan places
}

// places are what a waiter is given. The last one of two or more is for live work.
type places struct {
	rows int
	last bool
}

// NewInWork returns one with a limit; 0: none, for now.
func NewInWork(most int) *InWork { return &InWork{most: most} }

// Set changes the limit. Rows that are in work stay there, and count.
func (w *InWork) Set(most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = most
	w.letInLocked()
}

// Sequential reports whether one row is in work at a time.
func (w *InWork) Sequential() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most == 1
}

// Enter takes places for one row up to so many, as soon as there is one and nobody of a higher rank waits for it. It
// fails when ctx ends first. rank is asked each time that there is one: it calls nothing of w. last: only live work may
// be done there.
func (w *InWork) Enter(ctx context.Context, rank func() int, rows int) (taken int, last bool, err error) {
	if w == nil {
		return rows, false, nil
	}
	w.mu.Lock()
	if w.most == 0 {
		defer w.mu.Unlock()
		w.rows += rows
		return rows, false, nil
	}
	one := &waiter{rank, rows, make(chan places, 1)}
	w.waiting = append(w.waiting, one)
	w.letInLocked()
	w.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case p := <-one.let:
			return p.rows, p.last, nil
		case <-ctx.Done():
		case <-time.After(rankPause):
			if rank() > 0 { // it may have risen
				w.mu.Lock()
				w.letInLocked()
				w.mu.Unlock()
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case p := <-one.let: // at the same moment
		w.rows -= p.rows
	default:
		w.waiting = slices.DeleteFunc(w.waiting, func(other *waiter) bool { return other == one })
	}
	w.letInLocked()
	return 0, false, ctx.Err()
}

// TryEnter takes places for all of so many rows, or none. Of those who wait, bulk work alone is passed by.
func (w *InWork) TryEnter(rows int) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.freeLocked(rows) {
		return false
	}
	w.rows += rows
	return true
}

// Free reports whether TryEnter would take places now.
func (w *InWork) Free(rows int) bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.freeLocked(rows)
}

func (w *InWork) freeLocked(rows int) bool {
	return w.most == 0 || w.rows+rows <= w.most
}

// Add takes places whether there are any or not: work that was given up goes on.
func (w *InWork) Add(rows int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows += rows
}

// Leave gives places back.
func (w *InWork) Leave(rows int) {
	if w == nil || rows == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows -= rows
	w.letInLocked()
}

// letInLocked gives places to those who wait, while there are any.
func (w *InWork) letInLocked() {
	for len(w.waiting) > 0 && (w.most == 0 || w.rows < w.most) {
		first, rows := 0, w.waiting[0].rows
		if w.most > 0 {
			highest := w.waiting[0].rank()
			for i, other := range w.waiting[1:] {
				if rank := other.rank(); rank > highest {
					first, highest = i+1, rank
				}
			}
			room := w.most - w.rows
			if highest <= 0 && w.most > 1 {
				room--
			}
			if rows = min(w.waiting[first].rows, room); rows == 0 {
				return
			}
		}
		one := w.waiting[first]
		w.waiting = slices.Delete(w.waiting, first, first+1)
		w.rows += rows
		one.let <- places{rows, w.most > 1 && w.rows == w.most}
	}
}
