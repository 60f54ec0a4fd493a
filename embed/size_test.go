package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// scarceEmbedder has resources for calls of at most so many texts, and never for some of them.
type scarceEmbedder struct {
	class Class // of its errors; "": Resource
	down  bool
	most  int
	never []string
	often int // with it, every call of that number fails, whatever its size
	calls []int
}

func (*scarceEmbedder) Describe(context.Context) (Description, error) {
	return Description{Dims: 1}, nil
}

func (e *scarceEmbedder) Embed(_ context.Context, _ Kind, texts []string) ([]Result, error) {
	e.calls = append(e.calls, len(texts))
	results := make([]Result, len(texts))
	fails := e.down || e.most > 0 && len(texts) > e.most || e.often > 0 && len(e.calls)%e.often == 0
	for i, text := range texts {
		fails = fails || slices.Contains(e.never, text)
		results[i] = Result{Vector: []float32{float32(len(text))}}
	}
	if fails {
		return nil, &Error{Class: cmp.Or(e.class, Resource), Code: "failed", Err: errors.New("out of memory")}
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

// A text that the embedder never has resources for, or never answers with an error that blames it, keeps back no other.
// That others are answered meanwhile does not matter.
func TestP5_ATextTooLargeForTheEmbedderStaysAlone(t *testing.T) {
	for _, class := range []Class{Resource, Transient} {
		for at := range 8 {
			synctest.Test(t, func(t *testing.T) {
				texts := textsNamed("text ", 8)
				s := NewService(&scarceEmbedder{class: class, never: texts[at : at+1]}, 0)
				results, _ := until(t, s, texts)
				if class == Transient {
					s = NewService(&scarceEmbedder{class: class, never: texts[at : at+1]}, 0)
					for i := range 3 {
						if _, err := s.Embed(t.Context(), Document, texts, false); err == nil {
							t.Fatalf("answered at the try %d", i)
						}
						until(t, s, textsNamed(fmt.Sprint("other ", i), 64))
					}
					var err error
					if results, err = s.Embed(t.Context(), Document, texts, false); err != nil {
						t.Fatal(err)
					}
				}
				for i, r := range results {
					if failed := r.Err != nil; failed != (i == at) {
						t.Errorf("text %d of %d: %v", i, at, r.Err)
					}
				}
				if is, _ := Classify(results[at].Err); is != class {
					t.Errorf("its error is %v", results[at].Err)
				}
			})
		}
	}
}

// Several such texts in a batch keep back no other either, wherever they are, and nothing is cached.
func TestP5_SeveralTextsThatAreNeverAnsweredStayAlone(t *testing.T) {
	for _, class := range []Class{Resource, Transient} {
		for _, at := range [][]int{{2, 5}, {2, 3}, {0, 15}, {11, 12, 13, 14, 15}, {0, 1, 2, 3, 4}} {
			synctest.Test(t, func(t *testing.T) {
				left := textsNamed("text ", 16)
				e := &scarceEmbedder{class: class}
				for _, i := range at {
					e.never = append(e.never, left[i])
				}
				s := NewService(e, 0)
				try := 0
				for ; try < 40 && len(left) > len(at); try++ {
					results, err := s.Embed(t.Context(), Document, left, false)
					sleep.For(t.Context(), s.Rest())
					if err != nil {
						continue
					}
					var again []string
					for i, r := range results {
						if r.Err != nil {
							again = append(again, left[i])
						}
					}
					left = again
				}
				if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(e.never))) {
					t.Fatalf("%s, %v: after %d tries %q have no answer, in calls of %v texts", class, at, try, left, e.calls)
				}
				until(t, s, textsNamed("other ", 16))
				results, err := s.Embed(t.Context(), Document, left[:1], false)
				if class == Transient && (err != nil || results[0].Err == nil) { // it is tried each minute
					t.Errorf("%v: alone it gets %v, %v", at, results, err)
				}
			})
		}
	}
}

// An embedder that was down for long blames no text, and gets whole batches again at once.
func TestP5_NoTextIsToBlameForAnEmbedderThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &scarceEmbedder{class: Transient, down: true}
		s := NewService(e, 1<<20)
		texts := textsNamed("text ", 64)
		for i := range 20 {
			if results, err := s.Embed(t.Context(), Document, texts, false); err == nil {
				t.Fatalf("try %d: %v", i, results)
			}
			sleep.For(t.Context(), s.Rest())
		}
		e.down, e.calls = false, nil
		for i, r := range must(s.Embed(t.Context(), Document, texts, false)) {
			if r.Err != nil {
				t.Errorf("text %d: %v", i, r.Err)
			}
		}
		must(s.Embed(t.Context(), Document, textsNamed("other ", 64), false))
		if n := len(e.calls); n > 8 || e.calls[n-1] != 64 {
			t.Errorf("calls of %v texts", e.calls)
		}
	})
}

func must(results []Result, err error) []Result {
	if err != nil {
		panic(err)
	}
	return results
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
