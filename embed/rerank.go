package embed

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Reranker is what an Embedder implements that may have a reranker for a model (Description.Reranks).
type Reranker interface {
	// Rerank returns one score for each text, in the order given: how well it answers the query, the larger the better.
	// Each is finite, and only scores for one query compare. Errors are those of Embed.
	Rerank(ctx context.Context, query string, texts []string) ([]float32, error)
}

// ErrNoReranker means that a model gives no scores.
var ErrNoReranker = errors.New("the model is no reranker: it makes vectors, and no scores")

// Rerank scores texts for someone who waits: ahead of bulk work, in portions, so that others who ask get their turn
// between them. A text without anything but white space is not sent, and has the score of the worst that was.
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
		err = s.rerank(ctx, reranker, query, texts, sent[from:from+n], scores)
		over()
		if err != nil {
			return nil, err
		}
		from += n
	}
	fillWorst(scores, sent)
	return scores, nil
}

// rerank sends one portion.
func (s *Service) rerank(ctx context.Context, reranker Reranker, query string, texts []string, sent []int,
	scores []float32,
) error {
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

// fillWorst gives the texts that were not sent the least of the others' scores.
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
