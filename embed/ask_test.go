package embed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// held is an embedder whose calls block until they are released one by one.
type held struct {
	mu    sync.Mutex
	calls []*heldCall // under way, in the order they began
	began []string    // every call so far: kind and number of texts
}

type heldCall struct {
	name string
	done chan struct{}
}

func (*held) Describe(context.Context) (Description, error) { return Description{Dims: 1}, nil }

func (h *held) Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	c := &heldCall{name: fmt.Sprintf("%s %d", kind, len(texts)), done: make(chan struct{})}
	h.mu.Lock()
	h.calls, h.began = append(h.calls, c), append(h.began, c.name)
	h.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	results := make([]Result, len(texts))
	for i := range results {
		results[i].Vector = []float32{float32(len(texts[i]))}
	}
	return results, nil
}

// release ends the oldest call with this name.
func (h *held) release(t *testing.T, name string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.calls, func(c *heldCall) bool { return c.name == name })
	if at < 0 {
		t.Fatalf("no call %q is under way; there were %v", name, h.began)
	}
	close(h.calls[at].done)
	h.calls = slices.Delete(h.calls, at, at+1)
}

// wants checks which calls have begun once all goroutines are blocked.
func (h *held) wants(t *testing.T, names ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.began, names) {
		t.Fatalf("calls %v, want %v", h.began, names)
	}
}

func manyTexts(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint("text ", i)
	}
	return texts
}

func TestAsk_GoesAheadOfBulkWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		s := NewService(h, 0)
		var work sync.WaitGroup
		ask := func() {
			work.Go(func() {
				if _, err := s.Ask(t.Context(), Query, []string{"question"}); err != nil {
					t.Error(err)
				}
			})
		}
		bulk := func() {
			work.Go(func() {
				results, err := s.Embed(t.Context(), Document, manyTexts(100), false)
				if err != nil || len(results) != 100 || results[99].Vector[0] != 7 {
					t.Errorf("bulk: %d results, %v", len(results), err)
				}
			})
		}
		bulk() // no query yet: the batch stays whole
		h.wants(t, "document 100")
		h.release(t, "document 100")
		ask()
		h.wants(t, "document 100", "query 1")
		bulk() // a query runs: no bulk call begins
		h.wants(t, "document 100", "query 1")
		h.release(t, "query 1")
		h.wants(t, "document 100", "query 1", "document 32") // now a portion begins
		ask()                                                // during that portion, not after the other three
		h.wants(t, "document 100", "query 1", "document 32", "query 1")
		h.release(t, "document 32")
		h.wants(t, "document 100", "query 1", "document 32", "query 1")
		<-time.After(bulkYield) // the query never ends, but the rows continue
		h.wants(t, "document 100", "query 1", "document 32", "query 1", "document 32")
		h.release(t, "query 1")
		h.release(t, "document 32")
		synctest.Wait()
		h.release(t, "document 32")
		synctest.Wait()
		h.release(t, "document 4")
		work.Wait()

		<-time.After(askedLately)
		h.began = nil
		bulk()
		h.wants(t, "document 100")
		h.release(t, "document 100")
		work.Wait()
	})
}

func TestAsk_ManyTextsGoInPortions(t *testing.T) {
	t.Parallel()
	e := &script{}
	s := NewService(e, 0)
	results, err := s.Ask(t.Context(), Document, manyTexts(70))
	if err != nil || len(results) != 70 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, want := range []int{32, 32, 6} {
		if len(e.calls) != 3 || len(e.calls[i]) != want {
			t.Fatalf("%d calls, of which number %d has another size than %d", len(e.calls), i, want)
		}
	}
}

func TestEmbed_GivingWayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		s := NewService(h, 0)
		var work sync.WaitGroup
		work.Go(func() { _, _ = s.Ask(t.Context(), Query, []string{"question"}) })
		h.wants(t, "query 1")
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() {
			if _, err := s.Embed(ctx, Document, manyTexts(3), false); err == nil {
				t.Error("no error though the context has ended")
			}
		})
		h.wants(t, "query 1")
		cancel()
		h.wants(t, "query 1")
		h.release(t, "query 1")
		work.Wait()
	})
}

// A suspect has the embedder for itself. A query waits for that call, at most until its context ends, and the suspect
// does not give way to it.
func TestAsk_WaitsForASuspectNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &held{}
		s := NewService(h, 0)
		var work sync.WaitGroup
		work.Go(func() {
			if _, err := s.Embed(t.Context(), Document, manyTexts(100), true); err != nil {
				t.Error(err)
			}
		})
		h.wants(t, "document 100")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Ask(ctx, Query, []string{"question"})
		if class, code := Classify(err); class != Transient || code != "canceled" {
			t.Errorf("asked beside a suspect: %v", err)
		}
		if s.Rest() != 0 {
			t.Error("a question that was given up is held against the embedder")
		}
		h.release(t, "document 100")
		work.Wait()
	})
}
