package embed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Reranker is implemented by an Embedder whose model may be a reranker (Description.Reranks).
type Reranker interface {
	// Rerank returns one finite score for each text, in order: the better a text answers the query, the larger its
	// score. Scores of different queries are not comparable. Errors are those of Embed.
	Rerank(ctx context.Context, query string, texts []string) ([]float32, error)
}

// ErrNoReranker means that a model is not a reranker.
var ErrNoReranker = errors.New("the model is no reranker: it makes vectors, and no scores")

// Rerank scores texts ahead of bulk work, in portions, so that other queries get a turn in between. Blank texts are not
// sent; they get the worst score of the others.
func (s *Service) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	reranker, ok := s.embedder.(Reranker)
	if !ok {
		return nil, &Error{Class: Configuration, Code: "no_reranker", Err: ErrNoReranker}
	}
	defer s.gate.ask()()
	scores := make([]float32, len(texts))
	var sent []int
	for i, text := range texts {
		if strings.TrimSpace(text) != "" {
			sent = append(sent, i)
		}
	}
	for from := 0; from < len(sent); {
		n, over, err := s.turn(ctx, min(portion, len(sent)-from))
		if err != nil {
			return nil, err
		}
		if err := s.rerank(ctx, reranker, query, texts, sent[from:from+n], scores, over); err != nil {
			return nil, err
		}
		from += n
	}
	fillWorst(scores, sent)
	return scores, nil
}

// rerank sends one portion and ends its turn.
func (s *Service) rerank(ctx context.Context, reranker Reranker, query string, texts []string, sent []int,
	scores []float32, over func(),
) error {
	defer over()
	leave, err := s.enter(ctx, false)
	if err != nil {
		return err
	}
	defer leave()
	portion := lists.Map(sent, func(i int) string { return texts[i] })
	s.stats.Calls.Add(1)
	s.stats.Texts.Add(int64(len(portion)))
	s.stats.Asking.Add(1)
	defer s.stats.Asking.Add(-1)
	given, err := reranker.Rerank(ctx, query, portion)
	if err == nil && len(given) != len(portion) {
		err = &Error{Class: Data, Code: "wrong_count", Err: fmt.Errorf("%d scores for %d texts", len(given), len(portion))}
	}
	s.note(err)
	if err != nil {
		s.stats.Errors.Add(1)
		return err
	}
	for k, i := range sent {
		scores[i] = given[k]
	}
	return nil
}

// fillWorst gives unsent texts the lowest score of the others.
func fillWorst(scores []float32, sent []int) {
	if len(sent) == 0 {
		return
	}
	worst := scores[sent[0]]
	scored := make([]bool, len(scores))
	for _, i := range sent {
		scored[i], worst = true, min(worst, scores[i])
	}
	for i := range scores {
		if !scored[i] {
			scores[i] = worst
		}
	}
}
