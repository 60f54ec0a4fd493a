package search

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
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

// MaxPipelines is the largest number of pipelines in one search. MaxAcross is the largest offset + rows of such a
// search; each pipeline is asked for that many rows.
const (
	MaxPipelines = 16
	MaxAcross    = 1000
)

// Across searches several pipelines one after another and joins the results by reciprocal rank fusion, so their models
// may differ. If several pipelines of one table find a row, it is returned once, with the sum of its scores. An error
// of one pipeline fails the search.
func Across(r *Request, pipelines []*pipeline.Pipeline,
	find func(p *pipeline.Pipeline, each Request) ([]Hit, error),
) ([]Hit, error) {
	switch {
	case len(pipelines) == 0 || len(pipelines) > MaxPipelines:
		return nil, bad("expected 1 to %d pipelines, not %d", MaxPipelines, len(pipelines))
	case r.Offset+r.Rows > MaxAcross:
		return nil, bad("several pipelines find %d rows at most, with the offset", MaxAcross)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	type row struct {
		table uint32
		key   string
	}
	var joined []Hit
	at, tables, asked := map[row]int{}, map[uint32]bool{}, map[int32]bool{}
	each := *r
	each.Rows, each.Offset = r.Offset+r.Rows, 0
	for _, p := range pipelines {
		if tables[p.OID] { // a row may rank far lower in one ranking; pages must not overlap
			each.Rows = max(each.Rows, min(hybridCandidates, cmp.Or(r.Rerank, hybridCandidates)))
		}
		tables[p.OID] = true
	}
	size := 0
	for _, p := range pipelines {
		if asked[p.ID] {
			continue
		}
		asked[p.ID] = true
		hits, err := find(p, each)
		if err != nil {
			return nil, err
		}
		for place, h := range hits {
			if size += len(h.Columns) + len(h.Text); size > mostReturned {
				return nil, bad("the rows exceed %d MiB: request fewer rows, columns or pipelines", mostReturned>>20)
			}
			score := 1 / float64(fusion+place+1)
			same := row{p.OID, h.Key}
			if i, known := at[same]; known {
				score += *joined[i].Score
				joined[i].Score = &score
				continue
			}
			h.Pipeline, h.Score = p.Name, &score
			at[same] = len(joined)
			joined = append(joined, h)
		}
	}
	slices.SortStableFunc(joined, func(a, b Hit) int { return cmp.Compare(*b.Score, *a.Score) })
	return r.page(joined), nil
}

// Ranked sorts the candidates of Find by their reranker scores (stable), and returns the requested page.
func Ranked(ctx context.Context, p *pipeline.Pipeline, r *Request, hits []Hit, score Scorer) ([]Hit, error) {
	if r.Rerank == 0 || len(hits) == 0 {
		return hits, nil
	}
	texts := lists.Map(hits, func(v Hit) string { return first(v.Text, r.reranked()) })
	scores, err := score(ctx, p, r.Text, texts)
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

func first(text string, characters int) string {
	for i := range text {
		if characters == 0 {
			return text[:i]
		}
		characters--
	}
	return text
}
