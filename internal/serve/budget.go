package serve

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// budget bounds the memory that all requests take together. What a request costs is known before it is read: a body is
// held some times over while its texts are taken out of it, and a vector is held until it is written.
type budget struct {
	sem  *semaphore.Weighted
	size int64
}

const (
	copies = 6        // of a body, at most
	free   = 64 << 10 // bodies up to this size are not counted: as many as may be under way cost little
	// bytes for a number of a vector: in the answer of the model, in memory of what is known, and as it is written
	perNumber = 16
	turnLimit = 5 * time.Second
)

func newBudget(size int64) *budget { return &budget{semaphore.NewWeighted(size), size} }

// share is what one request holds of a budget.
type share struct {
	of   *budget
	held int64
}

// body takes what reading a request will cost, after a while of waiting for others if need be. A body without a length
// costs as much as the largest.
func (b *budget) body(ctx context.Context, length, most int64) (*share, error) {
	s := &share{of: b}
	if length < 0 || length > most {
		length = most
	}
	if length <= free {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	cost := min(copies*length, b.size)
	if b.sem.Acquire(ctx, cost) != nil {
		return nil, tooMuch()
	}
	s.held = cost
	return s, nil
}

// vectors changes the share to what an answer will cost. It does not wait: who waits while holding a share could wait
// for others that do the same.
func (s *share) vectors(texts, dims int) error {
	cost := min(int64(texts)*int64(dims)*perNumber, s.of.size)
	if cost <= s.held || cost <= free {
		return nil
	}
	if !s.of.sem.TryAcquire(cost - s.held) {
		return tooMuch()
	}
	s.held = cost
	return nil
}

func (s *share) release() {
	if s.held > 0 {
		s.of.sem.Release(s.held)
		s.held = 0
	}
}

func tooMuch() error {
	return &problem{
		status: http.StatusServiceUnavailable, kind: serverError, code: "overloaded", after: time.Second,
		message: "the requests under way are as large as fits in memory: come again in a second, or send less at a time",
	}
}
