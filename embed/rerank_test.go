package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// scorer is an embedder that gives texts their lengths as scores.
type scorer struct {
	Embedder
	calls [][]string
	give  func(texts []string) ([]float32, error)
}

func (s *scorer) Rerank(_ context.Context, _ string, texts []string) ([]float32, error) {
	s.calls = append(s.calls, texts)
	if s.give != nil {
		return s.give(texts)
	}
	scores := make([]float32, len(texts))
	for i, text := range texts {
		scores[i] = float32(len(text))
	}
	return scores, nil
}

func TestRerank_SendsPortionsAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	s := &scorer{}
	var texts []string
	for i := range 2*portion + 3 {
		texts = append(texts, fmt.Sprintf("%0*d", i+2, i), " ")
	}
	scores, err := NewService(s, 0).Rerank(t.Context(), "q", texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		want := float32(len(text))
		if text == " " { // not sent: as the worst
			want = 2
		}
		if scores[i] != want {
			t.Errorf("text %d: %g, want %g", i, scores[i], want)
		}
	}
	if len(s.calls) != 3 || slices.ContainsFunc(s.calls, func(c []string) bool { return len(c) > portion }) {
		t.Errorf("%d calls", len(s.calls))
	}
}

func TestRerank_BelievesNoWrongCount(t *testing.T) {
	t.Parallel()
	s := &scorer{give: func([]string) ([]float32, error) { return []float32{1}, nil }}
	if _, err := NewService(s, 0).Rerank(t.Context(), "q", []string{"a", "b"}); err == nil {
		t.Error("one score was taken for two texts")
	}
	if scores, err := NewService(s, 0).Rerank(t.Context(), "q", []string{"", " "}); err != nil || len(scores) != 2 {
		t.Errorf("nothing to send: %v, %v", scores, err)
	}
	plain := NewService(struct{ Embedder }{}, 0)
	if _, err := plain.Rerank(t.Context(), "q", []string{"a"}); !errors.Is(err, ErrNoReranker) {
		t.Errorf("no reranker: %v", err)
	}
}
