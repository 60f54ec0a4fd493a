package embedders

import (
	"context"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// CountTokens returns how many tokens a pipeline's model sees in a text, with those that it puts around it, and how
// many it takes at most; 0: no limit is known.
func (e *Pool) CountTokens(ctx context.Context, p *pipeline.Pipeline, text string) (n, most int, err error) {
	h, err := e.Matching(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	d, err := h.Describe(ctx)
	if err != nil {
		return 0, 0, ofPipeline(p.Spec, err)
	}
	t, err := embed.NewService(h, 0).Tokenize(ctx, []string{text}, false)
	if err != nil {
		return 0, 0, ofPipeline(p.Spec, err)
	}
	return len(t.Ends[0]) + t.Around, d.MaxTokens, nil
}
