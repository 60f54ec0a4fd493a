package embed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Stats counts what a Service did. Its fields may be read at any time.
type Stats struct {
	Calls     atomic.Int64 // to the embedder
	Texts     atomic.Int64 // sent to the embedder
	Saved     atomic.Int64 // texts answered without the embedder
	Truncated atomic.Int64
	Empty     atomic.Int64
	Failed    atomic.Int64 // texts
	Tokens    atomic.Int64
	Errors    atomic.Int64 // whole calls
}

// Service embeds texts with one model for any number of callers: it sends a text that occurs twice only once, remembers
// recent vectors, finds the text that breaks a batch, and gives the embedder a rest when it is down.
type Service struct {
	embedder Embedder
	cache    *Cache
	stats    Stats

	// alone is held for reading by ordinary calls and for writing by the call of a suspect, so that a text which kills the
	// embedder takes no neighbours with it.
	alone sync.RWMutex
	gate  gate // those who ask go first

	mu       sync.Mutex
	failures int
	rest     time.Time // no call before this
}

// NewService returns a Service that remembers up to cacheBytes of vectors.
func NewService(e Embedder, cacheBytes int64) *Service {
	return &Service{embedder: e, cache: NewCache(cacheBytes)}
}

// Describe asks the embedder what it is.
func (s *Service) Describe(ctx context.Context) (Description, error) { return s.embedder.Describe(ctx) }

// Stats returns the live counters.
func (s *Service) Stats() *Stats { return &s.stats }

// Rest returns how long the embedder should be left alone: 0 unless it failed as a whole of late.
func (s *Service) Rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Until(s.rest), 0)
}

// Longest rest between two tries of an embedder that is down.
const (
	firstRest = 200 * time.Millisecond
	maxRest   = 30 * time.Second
)

func (s *Service) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var whole *Error
	switch {
	case err == nil:
		s.failures, s.rest = 0, time.Time{}
	case errors.As(err, &whole) && whole.Class == Data, errors.Is(err, context.Canceled):
	default:
		pause := min(firstRest<<min(s.failures, 10), maxRest)
		if whole != nil && whole.RetryAfter > 0 {
			pause = whole.RetryAfter
		}
		s.failures++
		s.rest = time.Now().Add(pause)
	}
}

// Cached returns the vector of a text if it is remembered. Callers must not change it.
func (s *Service) Cached(hash [sha256.Size]byte) ([]float32, bool) { return s.cache.Get(hash) }

// Remember keeps a vector that is known from elsewhere.
func (s *Service) Remember(hash [sha256.Size]byte, vector []float32) { s.cache.Put(hash, vector) }

// Embed returns one Result per text, in order. With alone, nothing else is in the embedder meanwhile. An error means that no
// text was answered; its class is never Data: such a batch is halved until the text is found, whose Result then has the error.
//
// It gives way to Ask.
func (s *Service) Embed(ctx context.Context, kind Kind, texts []string, alone bool) ([]Result, error) {
	return s.embed(ctx, kind, texts, alone, s.bulk)
}

// embed answers what is known and has ask answer the rest.
func (s *Service) embed(ctx context.Context, kind Kind, texts []string, alone bool, ask func(context.Context, Kind, []string) ([]Result, error)) ([]Result, error) {
	results := make([]Result, len(texts))
	places := make(map[[sha256.Size]byte][]int, len(texts))
	var (
		send   []string
		hashes [][sha256.Size]byte
	)
	for i, text := range texts {
		hash := sha256.Sum256([]byte(text))
		if kind == Document {
			if v, ok := s.cache.Get(hash); ok {
				results[i] = Result{Vector: v}
				s.stats.Saved.Add(1)
				continue
			}
		}
		if at, ok := places[hash]; ok {
			places[hash] = append(at, i)
			s.stats.Saved.Add(1)
			continue
		}
		places[hash] = []int{i}
		send = append(send, text)
		hashes = append(hashes, hash)
	}
	if len(send) == 0 {
		return results, nil
	}
	if alone {
		s.alone.Lock()
		defer s.alone.Unlock()
	} else {
		s.alone.RLock()
		defer s.alone.RUnlock()
	}
	answers, err := ask(ctx, kind, send)
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		switch {
		case answer.Err != nil:
			s.stats.Failed.Add(1)
		case answer.Empty:
			s.stats.Empty.Add(1)
		case kind == Document:
			s.cache.Put(hashes[i], answer.Vector)
		}
		if answer.Truncated {
			s.stats.Truncated.Add(1)
		}
		s.stats.Tokens.Add(int64(answer.Tokens))
		for _, place := range places[hashes[i]] {
			results[place] = answer
		}
	}
	return results, nil
}

// Anew embeds documents without looking at what is remembered, to compare.
func (s *Service) Anew(ctx context.Context, texts []string) ([]Result, error) {
	s.alone.RLock()
	defer s.alone.RUnlock()
	return s.call(ctx, Document, texts)
}

// call sends texts, halving a batch that the embedder answers wrongly until the text at fault is alone.
func (s *Service) call(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	s.stats.Calls.Add(1)
	s.stats.Texts.Add(int64(len(texts)))
	results, err := s.embedder.Embed(ctx, kind, texts)
	if err == nil && len(results) != len(texts) {
		err = &Error{Class: Data, Code: "wrong_count", Err: fmt.Errorf("%d results for %d texts", len(results), len(texts))}
	}
	s.note(err)
	if err == nil {
		return results, nil
	}
	s.stats.Errors.Add(1)
	class, code := Classify(err)
	if class != Data {
		return nil, err
	}
	if len(texts) == 1 {
		return []Result{{Err: &TextError{Class: Data, Code: code, Message: "the embedder failed on this text alone"}}}, nil
	}
	half := len(texts) / 2
	first, err := s.call(ctx, kind, texts[:half])
	if err != nil {
		return nil, err
	}
	second, err := s.call(ctx, kind, texts[half:])
	if err != nil {
		return nil, err
	}
	return append(first, second...), nil
}
