package gate

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// budget limits the memory of all requests together. The cost of a request is known before it is read: its body is held
// several times while its texts are extracted, and a vector is held until it is written.
type budget struct {
	sem  *semaphore.Weighted
	size int64

	mu  sync.Mutex
	own map[string]*semaphore.Weighted // half of it for each token, by name, so that one token leaves room for others
}

const (
	copies = 6        // maximum number of copies of a body
	free   = 64 << 10 // bodies up to this size are not counted, because the number of requests is limited
	// bytes per number of a vector: in the model's answer, in the cache, and in the output
	perNumber = 16
	turnLimit = 5 * time.Second
)

func newBudget(size int64) *budget {
	return &budget{sem: semaphore.NewWeighted(size), size: size, own: map[string]*semaphore.Weighted{}}
}

// share is the part of a budget that one request holds.
type share struct {
	of   *budget
	own  *semaphore.Weighted // of its token
	most int64
	held int64
}

// of returns an empty share for a token; "": a listener without tokens.
func (b *budget) of(token string) *share {
	if token == "" {
		return &share{of: b, own: b.sem, most: b.size}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &share{of: b, own: b.own[token], most: b.size / 2}
	if s.own == nil {
		s.own = semaphore.NewWeighted(s.most)
		b.own[token] = s.own
	}
	return s
}

// take takes bytes of the token's part first, then of the whole: waiting for the whole blocks only the same token.
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

// body reserves the cost of reading a request, and waits for it for a while. A body of unknown length costs as much as
// the largest.
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

// vectors raises the share to the cost of an answer. It does not wait, because requests that wait while holding shares
// could deadlock.
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
	return Overloaded("the requests in progress use all memory for requests: retry in a second, or send less at a time",
		time.Second)
}
