package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// Searcher searches for texts. The CLI, the API and the dashboard each have one, with their own way to call models.
type Searcher struct {
	DB     DB
	Limit  time.Duration // time limit of the database's part; 0 means the constant Limit
	Embed  Embedder
	Score  Scorer                             // nil: no reranking
	Access func(p *pipeline.Pipeline) *Access // what the caller may see; nil: Request.Access applies
}

// Embedder embeds a text to search for with the model of a pipeline.
type Embedder func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error)

// Scorer scores each text with the reranker of a pipeline. A larger score means that the text answers the query better.
type Scorer func(ctx context.Context, p *pipeline.Pipeline, query string, texts []string) ([]float32, error)

// Found is the result of a search for a text.
type Found struct {
	Hits     []Hit
	Vector   []float32     // the vector of the text; set if one pipeline was searched
	Embedded time.Duration // time spent on embedding
	Took     time.Duration // time spent in the database
}

// Near embeds the text of a request with the model of a pipeline, finds the rows with the nearest vectors, and reranks
// them if the request asks for it. It returns the errors of Find.
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

// Search calls Near for one pipeline. For several, it joins the results of Near (see Across).
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

// About names the pipeline in the error of a search. A *BadRequestError is returned as it is; nil stays nil.
func About(p *pipeline.Pipeline, err error) error {
	if _, wrong := errors.AsType[*BadRequestError](err); wrong || err == nil {
		return err
	}
	return fmt.Errorf("search %q: %w", p.Name, err)
}
