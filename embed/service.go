package embed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Stats counts what a Service did. Its fields may be read at any time.
type Stats struct {
	Calls     atomic.Int64 // to the embedder
	Texts     atomic.Int64 // sent to the embedder, again when a batch had to be halved
	Missed    atomic.Int64 // texts that had to be sent
	Saved     atomic.Int64 // texts answered without that: remembered, twice in a batch, or under way for somebody else
	Truncated atomic.Int64
	Empty     atomic.Int64
	Failed    atomic.Int64 // texts
	Tokens    atomic.Int64
	Errors    atomic.Int64 // whole calls
	Took      atomic.Int64 // of all calls together, in nanoseconds
	Asking    atomic.Int64 // calls that are under way
}

// Service embeds texts with one model for any number of callers: it sends a text once, however often and wherever it
// occurs, also when two callers have it at the same time; it remembers recent answers, finds the text that breaks a
// batch, and gives the embedder a rest when it is down.
type Service struct {
	embedder Embedder
	cache    *Cache
	stats    Stats
	usual    Usual

	claiming sync.Mutex
	flights  map[Key]*flight // texts that are with the embedder

	// room is taken for one by ordinary calls and as a whole by the call of a suspect, so that a text which kills the
	// embedder takes no neighbours with it.
	room  *semaphore.Weighted
	gate  gate   // those who ask go first
	turns *turns // of those who share it; nil: nobody does

	mu       sync.Mutex
	rankings map[string]*ranking // of bulk work of different ranks: of each share, by its name
	failures int
	failed   error     // the last of them
	rest     time.Time // no call before this
}

// NewService returns a Service that remembers up to cacheBytes of vectors.
func NewService(e Embedder, cacheBytes int64) *Service {
	return &Service{
		embedder: e, cache: NewCache(cacheBytes), flights: map[Key]*flight{},
		rankings: map[string]*ranking{},
		room:     semaphore.NewWeighted(wholeRoom),
	}
}

// Describe asks the embedder what it is.
func (s *Service) Describe(ctx context.Context) (Description, error) { return s.embedder.Describe(ctx) }

// Stats returns the live counters.
func (s *Service) Stats() *Stats { return &s.stats }

// Usual returns how long batches take that have it embed their texts.
func (s *Service) Usual() *Usual { return &s.usual }

// Rest returns how long the embedder should be left alone: 0 unless it failed as a whole of late.
func (s *Service) Rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.rest), 0)
}

// Trouble tells how often in a row the embedder has failed as a whole, and how the last time; zero: it works.
type Trouble struct {
	Failures int
	Err      error
}

// Trouble returns the embedder's trouble of now.
func (s *Service) Trouble() Trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Trouble{s.failures, s.failed}
}

// The rest between two tries of an embedder that is down.
const (
	firstRest = 200 * time.Millisecond
	maxRest   = 10 * time.Second // one that is up again is seen to be within this time
)

func (s *Service) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var whole *Error
	switch {
	case err == nil:
		s.failures, s.failed, s.rest = 0, nil, time.Time{}
	case errors.As(err, &whole) && (whole.Class == Data || whole.Code == canceled), errors.Is(err, context.Canceled):
	default:
		pause := min(firstRest<<min(s.failures, 10), maxRest)
		if whole != nil && whole.RetryAfter > 0 {
			pause = whole.RetryAfter
		}
		s.failures++
		s.failed = err
		s.rest = time.Now().Add(pause)
	}
}

// wholeRoom is more than the calls that there may be at a time.
const wholeRoom = 1 << 30

// canceled is the code of calls whose caller gave up: they say nothing of the embedder.
const canceled = "canceled"

// enter waits until the embedder may be called: with alone, until nobody else does. The caller ends its call with
// leave.
func (s *Service) enter(ctx context.Context, alone bool) (leave func(), err error) {
	weight := int64(1)
	if alone {
		weight = wholeRoom
	}
	if err := s.room.Acquire(ctx, weight); err != nil {
		return nil, &Error{Class: Transient, Code: canceled, Err: fmt.Errorf("wait for the embedder: %w", context.Cause(ctx))}
	}
	return func() { s.room.Release(weight) }, nil
}

// Cached returns the vector of a document if it is remembered. Callers must not change it.
func (s *Service) Cached(hash [sha256.Size]byte) ([]float32, bool) {
	answer, ok := s.cache.Get(Key{Document, hash})
	return answer.Vector, ok && answer.Vector != nil
}

// Remember keeps the vector of a document that is known from elsewhere.
func (s *Service) Remember(hash [sha256.Size]byte, vector []float32) {
	s.cache.Put(Key{Document, hash}, Result{Vector: vector})
}

// Forget has the next call for a document ask the embedder.
func (s *Service) Forget(hash [sha256.Size]byte) { s.cache.Drop(Key{Document, hash}) }

// Reused counts texts for which a caller had the vector, so that it did not ask.
func (s *Service) Reused(texts int) { s.stats.Saved.Add(int64(texts)) }

// Cache returns how much is remembered.
func (s *Service) Cache() CacheSize { return s.cache.Size() }

// Anew embeds documents without looking at what is remembered, to compare.
func (s *Service) Anew(ctx context.Context, texts []string) ([]Result, error) {
	leave, err := s.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	batch := make([]*flight, len(texts))
	for i, text := range texts {
		batch[i] = &flight{text: text}
	}
	if err := s.call(ctx, Document, batch, func(f *flight, r Result) { f.answer = r }); err != nil {
		return nil, err
	}
	results := make([]Result, len(texts))
	for i, f := range batch {
		results[i] = f.answer
	}
	return results, nil
}

// call sends texts, halving a batch that the embedder answers wrongly until the text at fault is alone. Each answer
// goes to land as soon as it is there: what was paid for is kept, also when another part of the batch fails.
func (s *Service) call(ctx context.Context, kind Kind, batch []*flight, land func(*flight, Result)) error {
	texts := lists.Map(batch, func(f *flight) string { return f.text })
	s.stats.Calls.Add(1)
	s.stats.Texts.Add(int64(len(texts)))
	s.stats.Asking.Add(1)
	defer s.stats.Asking.Add(-1)
	began := time.Now()
	results, err := s.embedder.Embed(ctx, kind, texts)
	s.stats.Took.Add(int64(time.Since(began)))
	if err == nil && len(results) != len(texts) {
		err = &Error{Class: Data, Code: "wrong_count", Err: fmt.Errorf("%d results for %d texts", len(results), len(texts))}
	}
	s.note(err)
	if err == nil {
		for i, f := range batch {
			land(f, results[i])
		}
		return nil
	}
	s.stats.Errors.Add(1)
	class, code := Classify(err)
	if class != Data {
		return err
	}
	if len(batch) == 1 {
		land(batch[0], Result{Err: &TextError{Class: Data, Code: code, Message: "the embedder failed on this text alone"}})
		return nil
	}
	half := len(batch) / 2
	if err := s.call(ctx, kind, batch[:half], land); err != nil {
		return err
	}
	return s.call(ctx, kind, batch[half:], land)
}
