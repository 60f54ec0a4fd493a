package worker

import (
	"cmp"
	"sync/atomic"

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
	size = cmp.Or(size, defaultBudget)
	return &Budget{size: size, free: semaphore.NewWeighted(size)}
}

// room is a part of the budget, or that of the one batch outside of it.
type room struct {
	budget  *Budget
	size    int64        // of the budget; 0: outside, or given back
	outside *atomic.Bool // of who has the room outside; nil: it is inside
}

// shrink gives back what is more than size.
func (r *room) shrink(size int) {
	if more := r.size - int64(size); more > 0 {
		r.budget.free.Release(more)
		r.size -= more
	}
}

func (r *room) release() {
	r.shrink(0)
	if r.outside != nil {
		r.outside.Store(false)
		r.outside = nil
	}
}
