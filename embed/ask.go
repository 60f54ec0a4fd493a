package embed

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	select {
	case <-idle:
	case <-time.After(bulkYield):
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
// portion are kept if a later one fails. A text may be at fault though the error of its calls blames none: the embedder
// has resources for calls of that size without it, or answers all calls but those with it. Such a text is found, and
// does not fail the others. Texts that were in several failed calls come last, one at first, the least doubtful first.
func (s *Service) portions(ctx context.Context, kind Kind, batch []*flight, alone bool, next func(left int) (int,
	error),
) error {
	var (
		answered int
		inARow   int       // texts that failed alone since the last answer
		spared   []*flight // failed alone: at fault, unless too many do so in a row
		about    Description
	)
	if d, err := s.Describe(ctx); err == nil { // otherwise the call returns why
		about = d
	}
	// Another text was answered, before or after the failure of this one.
	atFault := func(f *flight) bool {
		return inARow < mostInARow && (answered > 0 || len(spared) == 0 && len(batch) > 1 ||
			!f.key.Asked && s.doubts.alone(f.key))
	}
	send := func(batch []*flight, most int, doubted bool) error {
		for grows := doubted; len(batch) > 0; {
			n, err := next(len(batch))
			if err != nil {
				return err
			}
			n = about.fit(min(n, most, len(batch)), func(i int) string { return batch[i].text })
			n, err = s.portion(ctx, kind, batch, n, alone)
			whole, _ := errors.AsType[*Error](err)
			switch {
			case err == nil:
				answered, inARow = max(answered, n), 0
				if grows {
					most *= 2
				}
			case whole == nil || whole.Class != Resource && (!doubted || !whole.blamesNone()):
				return err
			case n == 1 && atFault(batch[0]):
				batch[0].answer = whole.ofText("the embedder failed on this text alone, and answered others",
					cmp.Or(whole.RetryAfter, scarce))
				spared, inARow, grows = append(spared, batch[0]), inARow+1, doubted
			case n > 1 && (doubted || n <= answered && s.size.limited()):
				most, grows = n/2, false
				continue
			default:
				return err
			}
			batch = batch[n:]
		}
		return nil
	}
	clean, doubted := s.doubts.split(batch)
	err := send(clean, len(clean), false)
	if err == nil {
		err = send(doubted, 1, true)
	}
	if err != nil { // perhaps the embedder is down
		spared = spared[:len(spared)-inARow]
	}
	return s.settle(ctx, batch, spared, err)
}

// settle ends the texts of portions after the last call. If that failed with err though others were answered, the rest
// fails text by text, so that the answers are used now.
func (s *Service) settle(ctx context.Context, batch, spared []*flight, err error) error {
	whole, _ := errors.AsType[*Error](err)
	partly := whole != nil && ctx.Err() == nil && !batch[0].key.Asked &&
		(whole.Class == Resource || whole.Class == Transient && whole.Code != canceled) &&
		slices.ContainsFunc(batch, func(f *flight) bool { return f.landed })
	if err != nil && !partly {
		return err
	}
	for _, f := range spared {
		s.land(f, f.answer)
	}
	for _, f := range batch {
		if !f.landed {
			f.answer = whole.ofText("the embedder answered other texts, and then failed", whole.RetryAfter)
		}
	}
	return nil
}

// ofText returns the error of a whole call as that of one text.
func (e *Error) ofText(message string, after time.Duration) Result {
	return Result{Err: &TextError{Class: e.Class, Code: e.Code, Message: message, RetryAfter: after}}
}

// portion waits for a free call and sends up to most of the texts. It returns how many it sent. It ends its turn even
// if the embedder panics: otherwise all others would wait forever.
func (s *Service) portion(ctx context.Context, kind Kind, batch []*flight, most int, alone bool) (int, error) {
	n, over, err := s.turn(ctx, s.size.fitting(most))
	if err != nil {
		return 0, err
	}
	defer over()
	leave, err := s.enter(ctx, alone)
	if err != nil {
		return 0, err
	}
	defer leave()
	err = s.call(ctx, kind, batch[:n], s.land)
	if err == nil {
		s.doubts.called()
	}
	whole, _ := errors.AsType[*Error](err)
	if whole.blamesNone() || n == 1 && whole != nil && whole.Class == Resource {
		for _, f := range batch[:n] {
			s.doubts.failed(f.key)
		}
	}
	return n, err
}

// blamesNone reports whether the failure of a call may be the fault of one of its texts, though it says nothing about
// it: a server that is overloaded asks for a delay, but one that dies of a text, or takes too long for it, does not.
func (e *Error) blamesNone() bool {
	return e != nil && e.Class == Transient && e.RetryAfter == 0 && e.Code != canceled
}

// mayBeOfOne reports whether the failure of a call may be the fault of one of its texts, though others fit.
func (e *Error) mayBeOfOne() bool { return e.blamesNone() || e != nil && e.Class == Resource }
