package embedders

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
)

// Measured is a plugin that counts and takes the time. What else it can do goes through as it is.
type Measured struct {
	*Hosted
	of func(model, plugin string) *metrics.Embedder
}

var _ interface {
	embed.Embedder
	embed.Tokenizer
	embed.Reranker
	embed.Batcher
} = (*Measured)(nil)

// Embed implements embed.Embedder.
func (e *Measured) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	began := time.Now()
	results, err := e.Hosted.Embed(ctx, kind, texts)
	m := e.of(e.name(ctx), e.Plugin)
	m.Duration.Observe(time.Since(began).Seconds())
	m.BatchRows.Observe(float64(len(texts)))
	if err != nil {
		m.Embeddings.At("failed").Add(float64(len(texts)))
		return results, err
	}
	for _, r := range results {
		outcome := "ok"
		switch {
		case r.Err != nil:
			outcome = "failed"
		case r.Empty:
			outcome = "empty"
		}
		m.Embeddings.At(outcome).Inc()
		m.Tokens.Add(float64(r.Tokens))
		if r.Truncated {
			m.Truncated.Inc()
		}
	}
	return results, nil
}

// Rerank implements embed.Reranker.
func (e *Measured) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	began := time.Now()
	scores, err := e.Hosted.Rerank(ctx, query, texts)
	m := e.of(e.name(ctx), e.Plugin)
	m.Duration.Observe(time.Since(began).Seconds())
	m.BatchRows.Observe(float64(len(texts)))
	outcome := "scored"
	if err != nil {
		outcome = "failed"
	}
	m.Embeddings.At(outcome).Add(float64(len(texts)))
	return scores, err
}

// name is that of the model, which runs.
func (e *Measured) name(ctx context.Context) string {
	if e.Model() == "" {
		_, _ = e.Describe(ctx) // what a plugin cannot say of itself is counted without a name
	}
	return e.Model()
}
