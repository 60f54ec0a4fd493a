package worker

import (
	"cmp"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Sizes in bytes that bound the texts of batches in memory.
const (
	// defaultBudget bounds the texts of all batches of a process.
	defaultBudget = 64 << 20
	// firstText bounds the texts read with the rows of a batch; larger ones are read a few at a time.
	firstText = 1 << 20
	// largeTexts is how much of those is read and embedded at a time.
	largeTexts = 8 << 20
	// wholeText is more than the size of any text.
	wholeText = 1 << 40
)

// Budget bounds the texts that all workers of a process hold. One batch per pipeline is exempt: so a text larger than
// the budget can be processed, and a hanging embedder does not block other pipelines.
type Budget struct {
	size int64
	free *semaphore.Weighted
}

// NewBudget returns a budget of size bytes; 0: 64 MiB.
func NewBudget(size int64) *Budget {
	size = cmp.Or(size, defaultBudget)
	return &Budget{size: size, free: semaphore.NewWeighted(size)}
}

// room is a batch's part of the budget, or the exemption of one batch per pipeline.
type room struct {
	budget  *Budget
	size    int64        // taken from the budget; 0: exempt, or released
	outside *atomic.Bool // the exemption in use; nil: taken from the budget
}

// shrink releases what exceeds size.
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
