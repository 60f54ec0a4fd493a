package embed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is an Embedder whose vectors are the texts' lengths; certain texts make it fail.
type script struct {
	mu    sync.Mutex
	calls [][]string
}

func (*script) Describe(context.Context) (Description, error) { return Description{Dims: 1}, nil }

func (s *script) Embed(_ context.Context, _ Kind, texts []string) ([]Result, error) {
	s.mu.Lock()
	s.calls = append(s.calls, texts)
	s.mu.Unlock()
	results := make([]Result, len(texts))
	for i, text := range texts {
		switch {
		case strings.Contains(text, "down"):
			return nil, &Error{Class: Transient, Code: "unavailable", Err: errors.New("down")}
		case strings.Contains(text, "liar"):
			return nil, &Error{Class: Data, Code: "wrong_count", Err: errors.New("one too few")}
		case text == "none":
			results[i] = Result{Empty: true}
		default:
			results[i] = Result{Vector: []float32{float32(len(text))}}
		}
	}
	return results, nil
}

func TestService_SendsATextOnce(t *testing.T) {
	e := &script{}
	s := NewService(e, 1<<20)
	for range 2 {
		results, err := s.Embed(t.Context(), Document, []string{"a", "bb", "a", "a"}, false)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float32{1, 2, 1, 1} {
			if got := results[i].Vector[0]; got != want {
				t.Errorf("result %d = %v, want %v", i, got, want)
			}
		}
	}
	if len(e.calls) != 1 || len(e.calls[0]) != 2 {
		t.Errorf("calls %v, want one with two texts", e.calls)
	}
	if got := s.Stats().Saved.Load(); got != 6 {
		t.Errorf("saved %d, want 6", got)
	}
}

func TestService_FindsTheTextThatBreaksABatch(t *testing.T) {
	texts := make([]string, 33)
	for i := range texts {
		texts[i] = fmt.Sprint("text ", i)
	}
	texts[20] = "liar"
	s := NewService(&script{}, 0)
	results, err := s.Embed(t.Context(), Document, texts, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if bad := r.Err != nil; bad != (i == 20) {
			t.Errorf("result %d: error %v", i, r.Err)
		}
	}
	if s.Rest() != 0 {
		t.Error("a text's fault made the embedder rest")
	}
}

func TestService_RestsAnEmbedderThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService(&script{}, 0)
		if _, err := s.Embed(t.Context(), Document, []string{"down"}, false); err == nil {
			t.Fatal("no error")
		}
		if s.Rest() == 0 {
			t.Error("no rest after a failure of the whole embedder")
		}
		if _, err := s.Embed(t.Context(), Document, []string{"up"}, false); err != nil {
			t.Fatal(err)
		}
		if s.Rest() != 0 {
			t.Error("still resting after a success")
		}
	})
}

func TestService_ForgetsNoAnswerThatWasPaidFor(t *testing.T) {
	e := &script{}
	s := NewService(e, 1<<20)
	// The second half of the batch fails after the first half has been answered.
	results, err := s.Embed(t.Context(), Document, []string{"a", "bb", "liar", "down"}, false)
	if err != nil || results[1].Vector == nil || results[3].Err == nil || results[3].Sent {
		t.Fatalf("results %v, %v", results, err)
	}
	e.calls = nil
	if _, err := s.Embed(t.Context(), Document, []string{"a", "bb", "ccc"}, false); err != nil {
		t.Fatal(err)
	}
	if len(e.calls) != 1 || len(e.calls[0]) != 1 || e.calls[0][0] != "ccc" {
		t.Errorf("calls %v, want one with what was not answered", e.calls)
	}
}

// fewAtOnce is a script that takes two texts a call.
type fewAtOnce struct{ script }

func (*fewAtOnce) Describe(context.Context) (Description, error) {
	return Description{Dims: 1, MaxBatch: 2, MaxBatchBytes: 20}, nil
}

// An embedder splits a call that is larger than its limits, and then a part that fails takes the others with it.
func TestP8_APartOfABatchIsNotAskedForAgain(t *testing.T) {
	e := &fewAtOnce{}
	s := NewService(e, 1<<20)
	large := strings.Repeat("x", 20)
	results, err := s.Embed(t.Context(), Document, []string{"a", large, "bb", "ccc", "down"}, false)
	if err != nil || results[3].Vector == nil || results[4].Err == nil {
		t.Fatalf("results %v, %v", results, err)
	}
	want := [][]string{{"a"}, {large}, {"bb", "ccc"}, {"down"}}
	if !reflect.DeepEqual(e.calls, want) {
		t.Errorf("calls %q, want %q", e.calls, want)
	}
	e.calls = nil
	if _, err := s.Embed(t.Context(), Document, []string{"a", large, "bb", "ccc", "dddd"}, false); err != nil {
		t.Fatal(err)
	}
	if want := [][]string{{"dddd"}}; !reflect.DeepEqual(e.calls, want) {
		t.Errorf("then calls %q, want %q", e.calls, want)
	}
}

// panics is a script that panics once.
type panics struct {
	script

	again bool
}

func (p *panics) Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	if !p.again {
		p.again = true
		panic("no such case")
	}
	return p.script.Embed(ctx, kind, texts)
}

// A panic in a batch does not end the program, so it must not leave the others without an embedder.
func TestService_APanicHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewService(&panics{}, 1<<20).ShareOut(1)
		ctx := WithShare(t.Context(), Share{Name: "one"})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = s.Embed(ctx, Document, []string{"a"}, true)
		}()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := s.Embed(ctx, Document, []string{"a"}, false); err != nil {
			t.Error(err)
		}
	})
}

func TestService_RemembersEmptyTextsAndQueries(t *testing.T) {
	e := &script{}
	s := NewService(e, 1<<20)
	for range 3 {
		for _, kind := range []Kind{Document, Query} {
			results, err := s.Embed(t.Context(), kind, []string{"none", "a"}, false)
			if err != nil || !results[0].Empty || results[1].Vector == nil {
				t.Fatalf("%+v, %v", results, err)
			}
		}
	}
	if len(e.calls) != 2 { // a query may be a different text for the model
		t.Errorf("calls %v, want one for each kind", e.calls)
	}
}

// heldUp is a script whose calls block, and whose first calls may fail.
type heldUp struct {
	script
	entered chan []string
	open    chan error
}

func (g *heldUp) Embed(ctx context.Context, kind Kind, texts []string) ([]Result, error) {
	g.entered <- texts
	if err := <-g.open; err != nil {
		return nil, err
	}
	return g.script.Embed(ctx, kind, texts)
}

func TestService_SendsATextOnceThoughTwoWantItAtATime(t *testing.T) {
	for _, cacheBytes := range []int64{0, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			g := &heldUp{entered: make(chan []string, 9), open: make(chan error)}
			s := NewService(g, cacheBytes)
			var wg sync.WaitGroup
			ask := func(texts ...string) {
				wg.Go(func() {
					results, err := s.Embed(t.Context(), Document, texts, false)
					if err != nil {
						t.Error(err)
						return
					}
					for i, r := range results {
						if r.Vector[0] != float32(len(texts[i])) {
							t.Errorf("%q got the vector %v", texts[i], r.Vector)
						}
					}
				})
				synctest.Wait()
			}
			ask("a", "bb")
			ask("bb", "ccc", "bb")
			ask("ccc", "a")
			if got := len(g.entered); got != 2 {
				t.Errorf("%d calls, want one for a and bb, one for ccc", got)
			}
			g.open <- nil
			g.open <- nil
			wg.Wait()
			if got := s.Stats(); got.Texts.Load() != 3 || got.Missed.Load() != 3 || got.Saved.Load() != 4 {
				t.Errorf("%d texts, %d missed, %d saved, want 3, 3 and 4", got.Texts.Load(), got.Missed.Load(), got.Saved.Load())
			}
			if len(s.flights) != 0 {
				t.Errorf("%d texts are still under way", len(s.flights))
			}
		})
	}
}

// A share is a database: what one knows of a text neither tells another that it has the text, nor gives it a vector,
// since the database's owner may have put it there. Whoever asks learns as little of the rows.
func TestTrust_WhatIsKnownOfATextStaysWithinItsShare(t *testing.T) {
	t.Parallel()
	e := &script{}
	s := NewService(e, 1<<20)
	mine := WithShare(t.Context(), Share{Name: "mine"})
	others := WithShare(t.Context(), Share{Name: "others"})
	hash := sha256.Sum256([]byte("salary"))
	s.Remember(others, hash, []float32{666})
	if _, known := s.Cached(mine, hash); known {
		t.Error("a vector of another database is known")
	}
	row := func(ctx context.Context) ([]Result, error) { return s.Embed(ctx, Document, []string{"salary"}, false) }
	asked := func(ctx context.Context) ([]Result, error) { return s.Ask(ctx, Document, []string{"salary"}) }
	for _, c := range []struct {
		who  string
		ctx  context.Context //nolint:containedctx // a case of a test
		ask  func(ctx context.Context) ([]Result, error)
		want float32
		sent bool
	}{
		{"a row of another", others, row, 666, false},
		{"a row", mine, row, 6, true},
		{"the row again", mine, row, 6, false},
		{"a question", mine, asked, 6, true},
		{"it again", mine, asked, 6, false},
		{"one of nobody", t.Context(), asked, 6, true},
	} {
		results, err := c.ask(c.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := results[0]; got.Vector[0] != c.want || got.Sent != c.sent {
			t.Errorf("%s: the vector %v, sent: %t", c.who, got.Vector, got.Sent)
		}
	}
	s.Forget(mine, hash)
	if _, known := s.Cached(others, hash); !known {
		t.Error("a vector of another database is forgotten")
	}
}

// A caller that waited for another's failed call does not fail with it.
func TestService_WhoWaitedInVainAsksForHimself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &heldUp{entered: make(chan []string, 9), open: make(chan error)}
		s := NewService(g, 1<<20)
		errs := make(chan error, 2)
		ask := func(ctx context.Context, texts ...string) {
			go func() {
				_, err := s.Embed(ctx, Document, texts, false)
				errs <- err
			}()
			synctest.Wait()
		}
		ask(t.Context(), "a", "b")
		ask(t.Context(), "b", "c")
		impatient, cancel := context.WithCancel(t.Context())
		ask(impatient, "a")
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		<-g.entered
		<-g.entered                                                                    // c
		g.open <- nil                                                                  // one of the two; both are waiting
		g.open <- &Error{Class: Crash, Code: "crashed", Err: errors.New("it is gone")} // and the other
		synctest.Wait()
		if len(g.entered) > 0 { // the first call failed: b is sent again
			g.open <- nil
		}
		failed := 0
		for range 2 {
			if err := <-errs; err != nil {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%d of two callers failed, want the one whose call did", failed)
		}
	})
}

// TestP8_ACallThatSomebodyWaitsForIsNotBrokenOff: if the caller that began it gives up, the text is not sent again.
func TestP8_ACallThatSomebodyWaitsForIsNotBrokenOff(t *testing.T) {
	for name, c := range map[string]struct{ waits, givesUp bool }{
		"nobody waits": {}, "somebody waits": {waits: true}, "and gives up": {waits: true, givesUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &held{}
				s := NewService(e, 1<<20)
				first, giveUp := context.WithCancel(t.Context())
				second, giveUpToo := context.WithCancel(t.Context())
				defer giveUpToo()
				errs := make(chan error, 2)
				ask := func(ctx context.Context) {
					go func() {
						_, err := s.Embed(ctx, Document, []string{"a"}, false)
						errs <- err
					}()
					synctest.Wait()
				}
				ask(first)
				if c.waits {
					ask(second)
				}
				giveUp()
				if c.givesUp {
					synctest.Wait()
					giveUpToo()
				}
				synctest.Wait()
				if ended := len(errs) > 0; ended != (!c.waits || c.givesUp) {
					t.Fatalf("broken off: %t", ended)
				}
				if c.waits && !c.givesUp {
					e.release(t, "document 1")
					if err := errors.Join(<-errs, <-errs); err != nil || len(e.began) != 1 {
						t.Errorf("%v; sent %d times", err, len(e.began))
					}
				}
			})
		})
	}
}

// A suspect does not wait for callers that wait for it.
func TestService_SuspectsAndOthersDoNotBlockEachOther(t *testing.T) {
	e := &script{}
	s := NewService(e, 0)
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			for i := range 200 {
				texts := []string{fmt.Sprint(i % 7), fmt.Sprint((i + who) % 5), fmt.Sprint("x", i%3)}
				if _, err := s.Embed(t.Context(), Document, texts[:1+i%3], who%3 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Missed.Load() != st.Texts.Load() || len(s.flights) != 0 {
		t.Errorf("%d missed, %d sent, %d under way", st.Missed.Load(), st.Texts.Load(), len(s.flights))
	}
}

func TestCache_StaysBelowItsLimit(t *testing.T) {
	c := NewCache(10 * (entryOverhead + 4))
	for i := range 100 {
		c.Put(Key{Hash: [32]byte{byte(i)}}, Result{Vector: []float32{float32(i)}})
		if c.used > c.limit {
			t.Fatalf("used %d of %d", c.used, c.limit)
		}
	}
	if _, ok := c.Get(Key{Hash: [32]byte{99}}); !ok {
		t.Error("the newest entry is gone")
	}
	if _, ok := c.Get(Key{Hash: [32]byte{0}}); ok {
		t.Error("the oldest entry is still there")
	}
	if len(c.entries) != 10 || c.used != c.limit {
		t.Errorf("%d entries of %d bytes, want 10 that fill its %d", len(c.entries), c.used, c.limit)
	}
}
