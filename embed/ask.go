package embed

import (
	"context"
	"sync"
	"time"
)

// Bulk work gives way to those who wait for an answer. While somebody asks, no bulk call begins; and as long as
// somebody has asked of late, bulk calls are cut into portions, so that the next one to ask waits for a portion and
// not for a batch. Nobody asking costs nothing: batches stay whole.
const (
	// portion is how many texts a bulk call may have while people ask.
	portion = 32
	// askedLately is for how long after a question bulk calls stay small.
	askedLately = 30 * time.Second
	// bulkYield is for how long bulk work gives way at a time: it goes on, if slowly, under any number of questions.
	bulkYield = 500 * time.Millisecond
)

// gate lets those who ask go first. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	asking int
	last   time.Time     // when somebody last asked
	idle   chan struct{} // closed when nobody asks any more; nil when nobody does
}

// ask announces a question; the function it returns ends it.
func (g *gate) ask() (end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking++
	g.last = time.Now()
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.last = time.Now()
		if g.asking--; g.asking == 0 {
			close(g.idle)
			g.idle = nil
		}
	}
}

// giveWay waits until nobody asks, but not for ever. Its error is the context's.
func (g *gate) giveWay(ctx context.Context) error {
	g.mu.Lock()
	idle := g.idle
	g.mu.Unlock()
	if idle == nil {
		return ctx.Err()
	}
	timer := time.NewTimer(bulkYield)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// most is how many texts a bulk call may have now.
func (g *gate) most(texts int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking > 0 || !g.last.IsZero() && time.Since(g.last) < askedLately {
		return min(texts, portion)
	}
	return texts
}

// Ask embeds texts that somebody waits for: like Embed, but ahead of bulk work. Many texts are asked for in portions,
// so that others who ask get their turn between them.
func (s *Service) Ask(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	defer s.gate.ask()()
	return s.embed(ctx, kind, texts, true, func(ctx context.Context, kind Kind, batch []*flight) error {
		return s.portions(ctx, kind, batch, false, func(int) (int, error) { return portion, ctx.Err() })
	})
}

// bulk sends texts while nobody asks, in portions while somebody may.
func (s *Service) bulk(ctx context.Context, kind Kind, batch []*flight) error {
	return s.portions(ctx, kind, batch, false, func(left int) (int, error) {
		err := s.gate.giveWay(ctx)
		return s.gate.most(left), err
	})
}

// suspect sends texts with nothing beside them. It does not give way: those who ask wait for it anyhow, and the
// longer the later it ends.
func (s *Service) suspect(ctx context.Context, kind Kind, batch []*flight) error {
	return s.portions(ctx, kind, batch, true, func(left int) (int, error) { return left, ctx.Err() })
}

// portions sends texts in portions of the size that next returns, each of which finds room for itself.
func (s *Service) portions(ctx context.Context, kind Kind, batch []*flight, alone bool, next func(left int) (int,
	error),
) error {
	for len(batch) > 0 {
		n, err := next(len(batch))
		if err != nil {
			return err
		}
		n, over, err := s.turn(ctx, min(n, len(batch)))
		if err != nil {
			return err
		}
		leave, err := s.enter(ctx, alone)
		if err != nil {
			over()
			return err
		}
		err = s.call(ctx, kind, batch[:n], s.land)
		leave()
		over()
		if err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}
