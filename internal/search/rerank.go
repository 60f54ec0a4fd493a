package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Scorer returns a score for each text: how well it answers a query, the larger the better.
type Scorer func(ctx context.Context, query string, texts []string) ([]float32, error)

// Ranked puts candidates that Find has found in the order of their scores, those of one score as they were, and returns
// the rows that are wanted of them.
func Ranked(ctx context.Context, r *Request, hits []Hit, score Scorer) ([]Hit, error) {
	if r.Rerank == 0 || len(hits) == 0 {
		return hits, nil
	}
	texts := lists.Map(hits, func(v Hit) string { return first(v.Text, r.reranked()) })
	scores, err := score(ctx, r.Text, texts)
	if err != nil {
		return nil, err
	}
	for i := range hits {
		hits[i].Rerank = &scores[i]
		if hits[i].Chunk == nil {
			hits[i].Text = first(hits[i].Text, previewed)
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(*b.Rerank, *a.Rerank) })
	return r.page(hits), nil
}

// first returns the first characters of a text.
func first(text string, characters int) string {
	for i := range text {
		if characters == 0 {
			return text[:i]
		}
		characters--
	}
	return text
}
