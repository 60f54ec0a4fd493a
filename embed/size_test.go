package embed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// scarceEmbedder has resources for calls of at most so many texts, and never for some of them.
type scarceEmbedder struct {
	most  int
	never string
	often int // with it, every call of that number fails, whatever its size
	calls []int
}

func (*scarceEmbedder) Describe(context.Context) (Description, error) {
	return Description{Dims: 1}, nil
}

func (e *scarceEmbedder) Embed(_ context.Context, _ Kind, texts []string) ([]Result, error) {
	e.calls = append(e.calls, len(texts))
	results := make([]Result, len(texts))
	fails := e.most > 0 && len(texts) > e.most || e.often > 0 && len(e.calls)%e.often == 0
	for i, text := range texts {
		fails = fails || text == e.never
		results[i] = Result{Vector: []float32{float32(len(text))}}
	}
	if fails {
		return nil, &Error{Class: Resource, Code: "resource", Err: errors.New("out of memory")}
	}
	return results, nil
}

// until tries a batch until it is answered, and returns how often that took.
func until(t *testing.T, s *Service, texts []string) ([]Result, int) {
	t.Helper()
	for tries := 1; tries < 100; tries++ {
		results, err := s.Embed(t.Context(), Document, texts, false)
		if err == nil {
			return results, tries
		}
		sleep.For(t.Context(), s.Rest())
	}
	t.Fatal("never answered")
	return nil, 0
}

func textsNamed(of string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprint(of, i)
	}
	return texts
}

// An embedder that has no resources for a batch gets it in smaller calls, and larger ones again after a while.
func TestP5_ABatchTooLargeForTheEmbedderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scarceEmbedder{most: 9}
		s := NewService(e, 0)
		until(t, s, textsNamed("text ", 33))
		if last := e.calls[len(e.calls)-1]; last > 9 {
			t.Errorf("calls of %v texts", e.calls)
		}
		e.most, e.calls = 0, nil
		for range 5 {
			sleep.For(t.Context(), scarce+time.Second)
			until(t, s, textsNamed("other ", 33))
		}
		if last := e.calls[len(e.calls)-1]; last != 33 {
			t.Errorf("later calls of %v texts", e.calls)
		}
	})
}

// A text that the embedder never has resources for keeps back no other.
func TestP5_ATextTooLargeForTheEmbedderStaysAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := textsNamed("text ", 8)
		s := NewService(&scarceEmbedder{never: texts[3]}, 0)
		results, _ := until(t, s, texts)
		for i, r := range results {
			if failed := r.Err != nil; failed != (i == 3) {
				t.Errorf("text %d: %v", i, r.Err)
			}
		}
		if class, _ := Classify(results[3].Err); class != Resource {
			t.Errorf("its error is %v", results[3].Err)
		}
	})
}

// A rate limit that is met now and then makes no call smaller.
func TestService_ARateLimitMakesNoSmallerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scarceEmbedder{often: 2}
		s := NewService(e, 0)
		for i := range 10 {
			until(t, s, textsNamed(fmt.Sprint(i, " text "), 32))
		}
		for _, n := range e.calls {
			if n != 32 {
				t.Fatalf("calls of %v texts", e.calls)
			}
		}
	})
}
