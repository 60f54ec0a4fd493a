package search

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

func TestRanked_IsThePageOfTheScoresOrder(t *testing.T) {
	t.Parallel()
	hits := []Hit{
		{Key: "a", Text: "1"},
		{Key: "b", Text: strings.Repeat("é", 300)},
		{Key: "c", Text: "3"},
		{Key: "d", Text: "4", Chunk: &Chunk{}},
	}
	score := func(_ context.Context, _ *pipeline.Pipeline, query string, texts []string) ([]float32, error) {
		if query != "q" || len(texts) != 4 || len(texts[1]) != 600 {
			t.Errorf("asked for %q, %d texts", query, len(texts))
		}
		return []float32{0.5, 0.75, 0.5, 1}, nil
	}
	got, err := Ranked(t.Context(), nil, &Request{Text: "q", Rows: 2, Offset: 1, Rerank: 4}, slices.Clone(hits), score)
	if err != nil || len(got) != 2 || got[0].Key != "b" || got[1].Key != "a" || *got[0].Rerank != 0.75 {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := len([]rune(got[0].Text)); n != previewed {
		t.Errorf("%d characters are shown", n)
	}
	broken := func(context.Context, *pipeline.Pipeline, string, []string) ([]float32, error) {
		return nil, errors.New("down")
	}
	if _, err := Ranked(t.Context(), nil, &Request{Text: "q", Rows: 2, Rerank: 4}, hits, broken); err == nil {
		t.Error("without scores rows are returned")
	}
	if got, err := Ranked(t.Context(), nil, &Request{Rows: 4}, hits, broken); err != nil || len(got) != 4 {
		t.Errorf("not asked to rerank: %v, %v", got, err)
	}
}

func TestRerank_IsBounded(t *testing.T) {
	t.Parallel()
	for _, r := range []Request{
		{Rows: 10, Rerank: 9}, {Rows: 10, Offset: 5, Rerank: 14}, {Rows: 1, Rerank: -1}, {Rows: 1, Rerank: MaxReranked + 1},
	} {
		if r.Check() == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	for _, r := range []Request{{Rows: 10, Rerank: 10}, {Rows: 10, Offset: 5, Rerank: 15}, {Rows: 1000, Rerank: 1000}} {
		if err := r.Check(); err != nil || r.wanted() != r.Rerank || r.reranked() < 4000 {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
