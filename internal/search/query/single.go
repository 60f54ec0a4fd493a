package query

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// again is how often a search is tried if the model is switched meanwhile.
const again = 10

// Settled runs a search, and runs it again from the start if the pipeline switched to another generation meanwhile. The
// argument fresh is true on these retries. So a vector of one model is never compared with vectors of the other.
func Settled[T any](ctx context.Context, look func(fresh bool) (T, error)) (found T, err error) {
	for i := range again {
		if i > 1 && !sleep.For(ctx, moment) { // what was just loaded may be from before the switch
			return found, ctx.Err()
		}
		if found, err = look(i > 0); !errors.Is(err, search.ErrSwitched) {
			return found, err
		}
	}
	return found, &search.UnavailableError{Problem: "the model of the pipeline is being switched: retry later"}
}

// Searchable returns the named pipeline for a single search without a Backend. It fails if the pipeline cannot work.
func Searchable(ctx context.Context, pool *pgxpool.Pool, name string) (*pipeline.Pipeline, error) {
	found, err := lookup.Named(ctx, pool, []string{name})
	if err != nil {
		return nil, err
	}
	p := &found[0]
	if p.BesideID != 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("%q is a generation that is not in use: it cannot be searched",
			p.Name))
	}
	if p.Status != pipeline.Active {
		return nil, problem.New(problem.Failed, fmt.Errorf("pipeline %q cannot work: %s: %s", p.Name, p.Status, p.Detail))
	}
	return p, nil
}

// Embedder embeds texts to search for with plugins of this process. It uses the pipeline's own model, so the model
// cannot be the wrong one.
func Embedder(plugins *embedders.Pool) search.Embedder {
	return func(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error) {
		embedder, err := plugins.Matching(ctx, p)
		if err != nil {
			return nil, err
		}
		return vectorOf(embedder.Embed(ctx, embed.Query, []string{text}))
	}
}

// Embed embeds a text to search for with the pipeline's own model.
func (b *Backend) Embed(ctx context.Context, p *pipeline.Pipeline, text string) ([]float32, error) {
	model, err := b.Ready(ctx, p)
	if err != nil {
		return nil, err
	}
	return vectorOf(model.Ask(ctx, embed.Query, []string{text}))
}

func vectorOf(results []embed.Result, err error) ([]float32, error) {
	switch {
	case err != nil:
		return nil, err
	case results[0].Err != nil:
		return nil, problem.New(problem.Failed, results[0].Err)
	case results[0].Empty:
		return nil, problem.New(problem.Usage, errors.New("the text to search for holds nothing to embed"))
	}
	return results[0].Vector, nil
}

// answerLimit is how long a running sidecar may take to answer before the model is loaded here. It usually answers
// within milliseconds.
const answerLimit = "2 s"

// Asked returns the vector of a text to search for from a running sidecar, which has the model loaded. It returns an
// error if none answers or if the role of the connection may not ask.
func Asked(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, text string) ([]float32, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	first, err := asksFirst(ctx, conn.Conn())
	if err != nil {
		return nil, err
	}
	if first {
		_, err := conn.Exec(ctx, "CALL embedsidecar.ask($1, $2, $3::text::interval)", p.Name, text, answerLimit)
		if err != nil {
			return nil, fmt.Errorf("ask the sidecar: %w", err)
		}
	}
	var vector string
	err = conn.QueryRow(ctx, "SELECT embedsidecar.embed($1, $2, $3::text::interval)", text, p.Name, answerLimit).Scan(&vector)
	if err != nil {
		return nil, fmt.Errorf("ask the sidecar: %w", err)
	}
	stored := pipeline.StoredVector
	if p.Stored == pipeline.StoredSparse {
		stored = pipeline.StoredSparse
	}
	return stored.ParseText([]byte(vector))
}

// Similar finds the rows that are most similar to one of the pipeline's, by its key.
func Similar(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, key string,
	r search.Request,
) ([]search.Hit, error) {
	hits, err := search.Similar(ctx, pool, p, key, r)
	if errors.Is(err, search.ErrNoRow) {
		return nil, problem.New(problem.NoMatch, fmt.Errorf("pipeline %q, key %q: %w", p.Name, key, err))
	}
	return hits, Classified(search.About(p, err))
}

// Classified adds the class and the hints to the error of a search; nil stays nil.
func Classified(err error) error {
	if wrong, ok := errors.AsType[*search.BadRequestError](err); ok {
		return problem.New(problem.Usage, err, wrong.Hint...)
	}
	return err
}
