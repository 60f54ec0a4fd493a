package embed

import (
	"context"
	"sync"
	"time"
)

// Ranks are how many ranks of bulk work there are.
const Ranks = 4

const (
	// rankPause is how long after its last batch a rank counts as being at work: between two batches it reads rows.
	rankPause = 500 * time.Millisecond
	// lentEvery is how often work of a lower rank has a turn beside that of a higher one: it goes on, if slowly.
	lentEvery = 15 * time.Second
)

// ranking orders bulk work that is not urgent by its rank: that of one share, as the ranks of others say nothing to it.
// Its zero value has seen none.
type ranking struct {
	mu    sync.Mutex
	busy  [Ranks]int       // batches at work
	ended [Ranks]time.Time // when the last of them ended
	lent  time.Time        // when a lower rank last had a turn
}

// ranking returns that of the one whom a context names.
func (s *Service) ranking(ctx context.Context) *ranking {
	share, _ := ctx.Value(shareKey{}).(Share)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rankings[share.Name] == nil {
		s.rankings[share.Name] = new(ranking)
	}
	return s.rankings[share.Name]
}

// Outranked reports whether bulk work of a rank is to wait, since a higher rank of the same share is at work. Now and
// then it is not.
func (s *Service) Outranked(ctx context.Context, rank int) bool {
	t := s.ranking(ctx)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for higher := rank + 1; higher < Ranks; higher++ {
		if t.busy[higher] == 0 && now.Sub(t.ended[higher]) > rankPause {
			continue
		}
		if t.lent.IsZero() {
			t.lent = now
		}
		if now.Sub(t.lent) < lentEvery {
			return true
		}
		t.lent = now
		return false
	}
	return false
}

// Begin notes a batch of bulk work of a rank; the function it returns notes its end.
func (s *Service) Begin(ctx context.Context, rank int) (end func()) {
	t := s.ranking(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	for higher := rank + 1; higher < Ranks; higher++ {
		if t.busy[higher] > 0 {
			t.lent = time.Now()
		}
	}
	t.busy[rank]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy[rank]--
		t.ended[rank] = time.Now()
	}
}
