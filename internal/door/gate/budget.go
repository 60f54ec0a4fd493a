package gate

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// budget bounds the memory that all requests take together. What a request costs is known before it is read: a body is
// held some times over while its texts are taken out of it, and a vector is held until it is written.
type budget struct {
	sem  *semaphore.Weighted
	size int64

	mu  sync.Mutex
	own map[string]*semaphore.Weighted // half of it for each token, by name: one leaves room for others
}

const (
	copies = 6        // of a body, at most
	free   = 64 << 10 // bodies up to this size are not counted: as many as may be under way cost little
	// bytes for a number of a vector: in the answer of the model, in memory of what is known, and as it is written
	perNumber = 16
	turnLimit = 5 * time.Second
)

func newBudget(size int64) *budget {
	return &budget{sem: semaphore.NewWeighted(size), size: size, own: map[string]*semaphore.Weighted{}}
}

// share is what one request holds of a budget.
type share struct {
	of   *budget
	own  *semaphore.Weighted // of its token
	most int64
	held int64
}

// of returns nothing yet of what a token may have; "": the caller where no tokens are wanted.
func (b *budget) of(token string) *share {
	if token == "" {
		return &share{of: b, own: b.sem, most: b.size}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &share{of: b, own: b.own[token], most: b.size / 2} //nolint:mnd // half
	if s.own == nil {
		s.own = semaphore.NewWeighted(s.most)
		b.own[token] = s.own
	}
	return s
}

// take takes bytes of the token's part, then of the whole: who waits for the whole keeps only his own waiting.
func (s *share) take(bytes int64, acquire func(*semaphore.Weighted, int64) bool) bool {
	if !acquire(s.own, bytes) {
		return false
	}
	if s.own != s.of.sem && !acquire(s.of.sem, bytes) {
		s.own.Release(bytes)
		return false
	}
	s.held += bytes
	return true
}

// body takes what reading a request will cost, after a while of waiting for others if need be. A body without a length
// costs as much as the largest.
func (s *share) body(ctx context.Context, length, most int64) *Problem {
	if length < 0 || length > most {
		length = most
	}
	if length <= free {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	patient := func(of *semaphore.Weighted, n int64) bool { return of.Acquire(ctx, n) == nil }
	if !s.take(min(copies*length, s.most), patient) {
		return tooMuch()
	}
	return nil
}

// vectors changes the share to what an answer will cost. It does not wait: who waits while holding a share could wait
// for others that do the same.
func (s *share) vectors(texts, dims int) *Problem {
	cost := min(int64(texts)*int64(dims)*perNumber, s.most)
	if cost > s.held && cost > free && !s.take(cost-s.held, (*semaphore.Weighted).TryAcquire) {
		return tooMuch()
	}
	return nil
}

func (s *share) release() {
	if s.held > 0 {
		s.of.sem.Release(s.held)
		if s.own != s.of.sem {
			s.own.Release(s.held)
		}
		s.held = 0
	}
}

func tooMuch() *Problem {
	return Overloaded("the requests under way are as large as fits in memory: retry in a second, or send less at a time",
		time.Second)
}
