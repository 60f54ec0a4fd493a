package embed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// flight is a text that is being embedded. Other callers with the same text wait for it.
type flight struct {
	key    Key
	text   string
	answer Result        // valid once landed and done
	landed bool          // false: the call failed, and a caller that waited must retry itself
	of     *caller       // who sends it
	done   chan struct{} // closed at its end
}

// caller is a call that sends texts, for which other calls may wait. Guarded by claiming.
type caller struct {
	waiting int                     // others
	left    bool                    // its own context has ended
	cancel  context.CancelCauseFunc // cancels what it sends; nil: its own context does
}

// stays returns a context for what a caller sends. When ctx ends, it stays alive while other callers wait for one of
// the texts, so that no text is paid for twice.
func (s *Service) stays(ctx context.Context, c *caller) (sending context.Context, done func()) {
	sending, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		s.claiming.Lock()
		defer s.claiming.Unlock()
		if c.left = true; c.waiting == 0 {
			c.cancel(context.Cause(ctx))
		}
	})
	return sending, func() {
		stop()
		c.cancel(nil)
	}
}

// stopWaiting ends the wait for texts that others send.
func (s *Service) stopWaiting(texts ...*flight) {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	for _, f := range texts {
		if f.of.waiting--; f.of.waiting == 0 && f.of.left {
			f.of.cancel(context.Canceled)
		}
	}
}

// sender sends texts to the embedder and lands their flights.
type sender func(ctx context.Context, kind Kind, batch []*flight) error

// Embed returns one Result per text, in order. With alone, no other call runs at the same time. An error means that no
// text was answered. Its class is never Data: such a batch is halved until the bad text is found, whose Result then has
// the error. If only some texts were answered, the Results of the others have the error.
//
// Queries (Ask) have priority over it.
func (s *Service) Embed(ctx context.Context, kind Kind, texts []string, alone bool) ([]Result, error) {
	send := s.bulk
	if alone {
		send = s.suspect
	}
	return s.embed(ctx, kind, texts, false, send)
}

// embed answers cached texts, sends new ones, and waits for those that other callers have sent.
func (s *Service) embed(ctx context.Context, kind Kind, texts []string, asked bool, send sender) ([]Result, error) {
	answers, paid, self := make(map[Key]Result, len(texts)), map[Key]bool{}, &caller{}
	sending := ctx
	if !asked { // a query does not stay for other callers
		var done func()
		sending, done = s.stays(ctx, self)
		defer done()
	}
	keys := make([]Key, len(texts))
	wanted := make([]*flight, 0, len(texts)) // each text once
	for i, text := range texts {
		keys[i] = Key{kind, shareOf(ctx).Name, asked, sha256.Sum256([]byte(text))}
		if _, twice := answers[keys[i]]; !twice {
			answers[keys[i]] = Result{}
			wanted = append(wanted, &flight{key: keys[i], text: text, of: self})
		}
	}
	sent, spent := 0, 0
	for len(wanted) > 0 {
		mine, theirs := s.claim(wanted, answers)
		if len(mine) > 0 {
			if err := s.fly(sending, kind, mine, send); err != nil {
				s.stopWaiting(theirs...)
				return nil, paidFor(err, spent+tokensOf(mine))
			}
			spent += tokensOf(mine)
			for _, f := range mine {
				answers[f.key] = f.answer
				paid[f.key] = f.landed || f.answer.unknown()
			}
			sent += len(mine)
		}
		// This caller has no flights now, so two callers cannot wait for each other.
		wanted = wanted[:0]
		for i, f := range theirs {
			select {
			case <-f.done:
				s.stopWaiting(f)
			case <-ctx.Done():
				s.stopWaiting(theirs[i:]...)
				return nil, paidFor(&Error{Class: Transient, Code: canceled, Err: fmt.Errorf(
					"wait for a text that is being embedded: %w", context.Cause(ctx))}, spent)
			}
			if f.landed {
				answers[f.key] = f.answer
			} else {
				wanted = append(wanted, &flight{key: f.key, text: f.text, of: self})
			}
		}
	}
	s.stats.Saved.Add(int64(len(texts) - sent))
	results := make([]Result, len(texts))
	for i, key := range keys {
		results[i] = answers[key]
		results[i].Sent = paid[key]
		delete(paid, key) // a repeated text was free
	}
	return results, nil
}

// claim puts cached texts into answers, and finds texts that other callers are sending. The caller must send the rest.
func (s *Service) claim(wanted []*flight, answers map[Key]Result) (mine, theirs []*flight) {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	for _, f := range wanted {
		if answer, ok := s.cache.Get(f.key); ok {
			answers[f.key] = answer
			continue
		}
		if other, ok := s.flights[f.key]; ok {
			other.of.waiting++
			theirs = append(theirs, other)
			continue
		}
		f.done = make(chan struct{})
		s.flights[f.key] = f
		mine = append(mine, f)
	}
	return mine, theirs
}

// fly sends the texts that the caller has claimed. All their flights have ended when it returns.
func (s *Service) fly(ctx context.Context, kind Kind, mine []*flight, send sender) error {
	defer func() {
		for _, f := range mine {
			if !f.landed {
				s.end(f)
			}
		}
	}()
	s.stats.Missed.Add(int64(len(mine)))
	return send(ctx, kind, mine)
}

// land records the answer for a text.
func (s *Service) land(f *flight, answer Result) {
	switch {
	case answer.Err != nil:
		s.stats.Failed.Add(1)
	case answer.Empty:
		s.stats.Empty.Add(1)
	}
	if answer.Truncated {
		s.stats.Truncated.Add(1)
	}
	s.stats.Tokens.Add(int64(answer.Tokens))
	switch text, failed := errors.AsType[*TextError](answer.Err); {
	case !failed || text.Class == Data:
		s.doubts.answered(f.key)
	case text.Class == Transient && text.RetryAfter == 0:
		s.doubts.failed(f.key)
	}
	f.answer, f.landed = answer, true
	s.cache.Put(f.key, answer)
	s.end(f)
}

// end wakes the callers that wait for a text.
func (s *Service) end(f *flight) {
	s.claiming.Lock()
	delete(s.flights, f.key)
	s.claiming.Unlock()
	close(f.done)
}

// split returns the texts that are not doubted, and those that are, the least doubtful first.
func (d *doubts) split(batch []*flight) (clean, doubted []*flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range batch {
		if d.texts[f.key].calls >= doubtful {
			doubted = append(doubted, f)
		} else {
			clean = append(clean, f)
		}
	}
	slices.SortStableFunc(doubted, func(a, b *flight) int {
		return cmp.Compare(d.texts[a.key].calls, d.texts[b.key].calls)
	})
	return clean, doubted
}
