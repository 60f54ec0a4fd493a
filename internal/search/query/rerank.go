package query

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// Score scores texts with the reranker that the configuration names for a pipeline.
func (b *Backend) Score(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error) {
	name := b.config().SearchOf(p.Name).Rerank
	if name == "" {
		return nil, noReranker(p.Name)
	}
	return b.Book().Rerank(ctx, p, name, query, texts, func() ([]float32, error) {
		return b.score(ctx, name, query, texts)
	})
}

// ScoreBy scores texts with a reranker of some pipelines, or of all: the named one, or the first.
func (b *Backend) ScoreBy(ctx context.Context, only []string, name, query string, texts []string) ([]float32, error) {
	known := b.config().Rerankers(only)
	switch {
	case name == "" && len(known) == 0:
		return nil, &search.BadRequestError{
			Problem: "no reranker is configured",
			Hint:    []string{"name one of the models of the configuration: search: {rerank: MODEL}"},
		}
	case name == "":
		name = known[0]
	case !slices.Contains(known, name):
		return nil, ErrUnknown
	}
	return b.Book().Scores(ctx, name, query, texts, func() ([]float32, error) { return b.score(ctx, name, query, texts) })
}

func (b *Backend) score(ctx context.Context, model, query string, texts []string) ([]float32, error) {
	service, err := b.Service(ctx, pipeline.ModelName{Model: model})
	if err != nil {
		return nil, err
	}
	return service.Rerank(ctx, query, texts)
}

// Scorer returns a scorer for a single search: it asks a running sidecar, or else loads the reranker here. It fails if
// the configuration names none and no sidecar has one.
func Scorer(pool *pgxpool.Pool, plugins *embedders.Pool, c *config.Config) search.Scorer {
	return func(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error) {
		var scores []float32
		asked := pool.QueryRow(ctx, "SELECT embedsidecar.rerank($1, $2, $3::text[], $4::text::interval)", p.Name, query, texts,
			scoreLimit).Scan(&scores)
		switch name := c.SearchOf(p.Name).Rerank; {
		case asked == nil && len(scores) == len(texts):
			return scores, nil
		case name == "":
			hints := noReranker(p.Name)
			return nil, problem.New(problem.Usage, fmt.Errorf("%w (%w)", hints, errors.Join(asked)),
				problem.Hints(hints)...)
		default:
			reranker, err := plugins.Get("", name)
			if err != nil {
				return nil, err
			}
			return reranker.Rerank(ctx, query, texts)
		}
	}
}

// scoreLimit is how long a running sidecar may take for scores; the model reads every candidate.
const scoreLimit = "20 s"
