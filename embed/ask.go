package embed

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// Queries have priority over bulk work. No bulk call begins while a query runs. After a query, bulk calls are small for
// a while, so that the next query waits only for a small call. Without queries, batches stay whole.
const (
	// portion is the limit of texts in a bulk call after a recent query.
	portion = 32
	// askedLately is how long bulk calls stay small after a query.
	askedLately = 30 * time.Second
	// bulkYield is the longest wait of a bulk call for queries, so that bulk work continues slowly under any number of
	// them.
	bulkYield = 500 * time.Millisecond
)

// gate lets queries go first. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	asking int
	last   time.Time     // time of the last query
	idle   chan struct{} // closed when the last query ends; nil while there is none
}

// ask begins a query; the returned function ends it.
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

// giveWay waits until no query runs, at most for bulkYield. Its error is the context's.
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

// most is the current limit of texts in a bulk call.
func (g *gate) most(texts int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking > 0 || !g.last.IsZero() && time.Since(g.last) < askedLately {
		return min(texts, portion)
	}
	return texts
}

// Ask embeds texts like Embed, but ahead of bulk work. It splits many texts into portions, so that other queries get a
// turn in between.
func (s *Service) Ask(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	defer s.gate.ask()()
	return s.embed(ctx, kind, texts, true, func(ctx context.Context, kind Kind, batch []*flight) error {
		return s.portions(ctx, kind, batch, false, func(int) (int, error) { return portion, ctx.Err() })
	})
}

// bulk sends texts while no query runs, in portions after a recent query.
func (s *Service) bulk(ctx context.Context, kind Kind, batch []*flight) error {
	return s.portions(ctx, kind, batch, false, func(left int) (int, error) {
		err := s.gate.giveWay(ctx)
		return s.gate.most(left), err
	})
}

// suspect sends texts while no other call runs. It does not give way: queries have to wait for it anyway.
func (s *Service) suspect(ctx context.Context, kind Kind, batch []*flight) error {
	return s.portions(ctx, kind, batch, true, func(left int) (int, error) { return left, ctx.Err() })
}

// portions sends texts in portions of the size that next returns, within the embedder's limits: the answers of one
// portion are kept if a later one fails. Each portion waits for a free call. If the embedder had resources for a
// portion, but not for a later one of that size, one of the texts is at fault: it is found, and does not fail the
// others.
func (s *Service) portions(ctx context.Context, kind Kind, batch []*flight, alone bool, next func(left int) (int,
	error),
) error {
	answered, most, spared := 0, len(batch), len(batch) == 1
	var about Description
	if d, err := s.Describe(ctx); err == nil { // otherwise the call returns why
		about = d
	}
	for len(batch) > 0 {
		n, err := next(len(batch))
		if err != nil {
			return err
		}
		n = about.fit(min(n, most, len(batch)), func(i int) string { return batch[i].text })
		n, over, err := s.turn(ctx, s.size.fitting(n))
		if err != nil {
			return err
		}
		err = s.inTurn(ctx, kind, batch[:n], alone, over)
		switch whole, _ := errors.AsType[*Error](err); {
		case err == nil:
			answered = max(answered, n)
		case whole == nil || whole.Class != Resource || spared:
			return err
		case n == 1:
			spared = true
			s.land(batch[0], Result{Err: &TextError{
				Class: Resource, Code: whole.Code, Message: "the embedder had no resources for this text alone",
				RetryAfter: cmp.Or(whole.RetryAfter, scarce),
			}})
		case n <= answered && s.size.limited():
			most = n / 2
			continue
		default:
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// inTurn sends texts and ends their turn, even if the embedder panics: otherwise all others would wait forever.
func (s *Service) inTurn(ctx context.Context, kind Kind, batch []*flight, alone bool, over func()) error {
	defer over()
	leave, err := s.enter(ctx, alone)
	if err != nil {
		return err
	}
	defer leave()
	return s.call(ctx, kind, batch, s.land)
}
