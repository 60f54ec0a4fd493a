package embed

import (
	"context"
	"sync"
	"time"
)

// Ranks is the number of ranks of bulk work.
const Ranks = 4

const (
	// rankPause is how long a rank counts as active after its last batch: between two batches it reads rows.
	rankPause = 500 * time.Millisecond
	// lentEvery is how often a lower rank gets a turn while a higher one is active, so that it continues slowly.
	lentEvery = 15 * time.Second
)

// ranking orders the non-urgent bulk work of one share by rank. Ranks of other shares do not count. The zero value is
// idle.
type ranking struct {
	mu    sync.Mutex
	busy  [Ranks]int       // running batches
	ended [Ranks]time.Time // when the last of them ended
	lent  time.Time        // last turn of a lower rank
}

// ranking returns the ranking of the context's share.
func (s *Service) ranking(ctx context.Context) *ranking {
	share := shareOf(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rankings[share.Name] == nil {
		s.rankings[share.Name] = new(ranking)
	}
	return s.rankings[share.Name]
}

// Outranked reports whether bulk work of a rank must wait because a higher rank of the same share is active.
// Periodically it returns false anyway.
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

// Begin records the start of a batch of bulk work; the returned function records its end.
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
