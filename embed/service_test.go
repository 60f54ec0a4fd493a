package embed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// script is an Embedder whose vectors are the texts' lengths and whose faults are in the texts.
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
}

func TestCache_StaysBelowItsLimit(t *testing.T) {
	c := NewCache(10 * (entryOverhead + 4))
	for i := range 100 {
		c.Put([32]byte{byte(i)}, []float32{float32(i)})
		if c.used > c.limit {
			t.Fatalf("used %d of %d", c.used, c.limit)
		}
	}
	if _, ok := c.Get([32]byte{99}); !ok {
		t.Error("the newest entry is gone")
	}
	if _, ok := c.Get([32]byte{0}); ok {
		t.Error("the oldest entry is still there")
	}
}
