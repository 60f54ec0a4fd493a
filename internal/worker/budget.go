package worker

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Sizes of texts, in bytes, that bound what batches bring into memory.
const (
	// defaultBudget is what the texts of all batches of a process may take together.
	defaultBudget = 64 << 20
	// firstText is what the rows of a batch are read with; texts beyond it are read a few at a time.
	firstText = 1 << 20
	// largeTexts is what is read and embedded at a time of those.
	largeTexts = 8 << 20
	// wholeText is more than any text has.
	wholeText = 1 << 40
)

// Budget bounds the texts that the workers of a process hold at the same time. One batch of each pipeline has room
// outside of it: a text that is larger than the budget passes, and a pipeline whose embedder hangs keeps no other one
// waiting.
type Budget struct {
	size int64
	free *semaphore.Weighted
}

// NewBudget returns a budget of so many bytes; 0: 64 MiB.
func NewBudget(size int64) *Budget {
	size = orDefault(size, defaultBudget)
	return &Budget{size: size, free: semaphore.NewWeighted(size)}
}

// room is a part of the budget, or that of the one batch outside of it.
type room struct {
	w    *Worker
	size int64 // of the budget; 0: outside, or given back
	own  bool
}

// room waits until there is room for so many bytes of text. Whoever holds some must not ask for more.
func (w *Worker) room(ctx context.Context, size int) (*room, error) {
	if w.outside.CompareAndSwap(false, true) {
		return &room{w: w, own: true}, nil
	}
	r := &room{w: w, size: min(int64(size), w.o.Budget.size)}
	if err := w.o.Budget.free.Acquire(ctx, r.size); err != nil {
		return nil, fmt.Errorf("wait for room for %d bytes of text: %w", size, err)
	}
	return r, nil
}

// shrink gives back what is more than size.
func (r *room) shrink(size int) {
	if more := r.size - int64(size); more > 0 {
		r.w.o.Budget.free.Release(more)
		r.size -= more
	}
}

func (r *room) release() {
	r.shrink(0)
	if r.own {
		r.own = false
		r.w.outside.Store(false)
	}
}
