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

// Stats are the counters of a Service. Its fields may be read at any time.
type Stats struct {
	Calls     atomic.Int64 // to the embedder
	Texts     atomic.Int64 // sent to the embedder, including repeats when a batch is halved
	Missed    atomic.Int64 // texts that had to be sent
	Saved     atomic.Int64 // texts not sent: cached, repeated in a batch, or being sent by another caller
	Truncated atomic.Int64
	Empty     atomic.Int64
	Failed    atomic.Int64 // texts
	Tokens    atomic.Int64
	Errors    atomic.Int64 // whole calls
	Took      atomic.Int64 // of all calls together, in nanoseconds
	Asking    atomic.Int64 // calls under way
}

// Service embeds texts with one model for any number of callers. It sends a text once, even if several callers have it
// at the same time. It caches recent answers, finds the text that breaks a batch, and backs off when the embedder is
// down.
type Service struct {
	embedder Embedder
	cache    *Cache
	stats    Stats
	usual    Usual

	claiming sync.Mutex
	flights  map[Key]*flight // texts being sent

	// room is acquired once by an ordinary call, and completely by the call of a suspect, so that a text that kills the
	// embedder does not fail other calls.
	room   *semaphore.Weighted
	gate   gate   // queries go first
	turns  *turns // of the shares; nil: not shared
	size   size
	doubts doubts

	mu       sync.Mutex
	rankings map[string]*ranking // of bulk work, by share
	failures int
	failed   error     // the last of them
	rest     time.Time // no call before this time
}

// NewService returns a Service with a cache of up to cacheBytes.
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

// Usual returns the usual duration of batches.
func (s *Service) Usual() *Usual { return &s.usual }

// Rest returns how long not to call the embedder: 0 unless a whole call failed recently.
func (s *Service) Rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.rest), 0)
}

// Trouble is the number of consecutive failed calls of the embedder, and the last error; zero: it works.
type Trouble struct {
	Failures int
	Err      error
}

// Trouble returns the embedder's current trouble.
func (s *Service) Trouble() Trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Trouble{s.failures, s.failed}
}

// The backoff of an embedder that is down.
const (
	firstRest = 200 * time.Millisecond
	maxRest   = 10 * time.Second // recovery is noticed within this time
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

// wholeRoom is more than the possible number of concurrent calls.
const wholeRoom = 1 << 30

// canceled is the code of calls whose caller gave up, which do not count as failures.
const canceled = "canceled"

// enter waits until the embedder may be called; with alone, until no other call runs. The caller ends its call with
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

// Cached returns the vector of a row's text if the context's share has it in the cache. Callers must not change it.
func (s *Service) Cached(ctx context.Context, hash [sha256.Size]byte) ([]float32, bool) {
	answer, ok := s.cache.Get(rowKey(ctx, hash))
	return answer.Vector, ok && answer.Vector != nil
}

// Remember caches the vector of a row's text from another source, for the context's share.
func (s *Service) Remember(ctx context.Context, hash [sha256.Size]byte, vector []float32) {
	s.cache.Put(rowKey(ctx, hash), Result{Vector: vector})
}

// Forget removes the vector of a row's text from the cache of the context's share.
func (s *Service) Forget(ctx context.Context, hash [sha256.Size]byte) {
	s.cache.Drop(rowKey(ctx, hash))
}

// Reused counts texts whose vectors a caller already had.
func (s *Service) Reused(texts int) { s.stats.Saved.Add(int64(texts)) }

// Anew embeds documents without using the cache, for comparisons.
func (s *Service) Anew(ctx context.Context, texts []string) ([]Result, error) {
	leave, err := s.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	batch := lists.Map(texts, func(text string) *flight { return &flight{text: text} })
	if err := s.call(ctx, Document, batch, func(f *flight, r Result) { f.answer = r }); err != nil {
		return nil, err
	}
	return lists.Map(batch, func(f *flight) Result { return f.answer }), nil
}

// call sends texts. It halves a batch with a Data error until the bad text is alone. Each answer lands immediately, so
// that paid answers are kept if another part of the batch fails.
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
	s.size.note(texts, err)
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
