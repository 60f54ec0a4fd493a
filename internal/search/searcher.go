package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Searcher searches for texts. Each entrance has one, with its own way to ask models.
type Searcher struct {
	DB     DB
	Limit  time.Duration // for the database; 0: Limit
	Embed  Embedder
	Score  Scorer                             // nil: nobody reranks
	Access func(p *pipeline.Pipeline) *Access // what may be seen; nil: what the request says
}

// Embedder embeds a text to search for with the model of a pipeline.
type Embedder func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error)

// Scorer returns a score for each text, by the reranker of a pipeline: how well it answers a query, the larger the
// better.
type Scorer func(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error)

// Found is what a search for a text found.
type Found struct {
	Hits     []Hit
	Vector   []float32     // of the text, where one pipeline was searched
	Embedded time.Duration // that the models took
	Took     time.Duration // that the database took
}

// Near embeds the text of a request with the model of a pipeline, finds the rows whose vectors are nearest, and reranks
// them if that is wanted. It returns the errors of Find.
func (s *Searcher) Near(ctx context.Context, p *pipeline.Pipeline, r Request) (found Found, err error) {
	began := time.Now()
	if found.Vector, err = s.Embed(ctx, p, r.Text); err != nil {
		return found, err
	}
	r.Vector, found.Embedded = found.Vector, time.Since(began)
	if s.Access != nil {
		r.Access = s.Access(p)
	}
	began = time.Now()
	found.Hits, err = Within(ctx, cmp.Or(s.Limit, Limit), func(ctx context.Context) ([]Hit, error) {
		return Find(ctx, s.DB, p, r)
	})
	found.Took = time.Since(began)
	if err == nil {
		found.Hits, err = Ranked(ctx, p, &r, found.Hits, s.Score)
	}
	return found, About(p, err)
}

// Search is Near for one pipeline, and for several joins what they find (Across).
func (s *Searcher) Search(ctx context.Context, pipelines []*pipeline.Pipeline, r Request) (found Found, err error) {
	if len(pipelines) == 1 {
		return s.Near(ctx, pipelines[0], r)
	}
	found.Hits, err = Across(&r, pipelines, func(p *pipeline.Pipeline, each Request) ([]Hit, error) {
		one, err := s.Near(ctx, p, each)
		found.Embedded, found.Took = found.Embedded+one.Embedded, found.Took+one.Took
		return one.Hits, err
	})
	return found, err
}

// About says which pipeline the error of a search is about. A *BadRequestError says it itself; nil stays nil.
func About(p *pipeline.Pipeline, err error) error {
	if _, wrong := errors.AsType[*BadRequestError](err); wrong || err == nil {
		return err
	}
	return fmt.Errorf("search %q: %w", p.Name, err)
}
