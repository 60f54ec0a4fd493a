package host

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/grpc"

	"github.com/embedsidecar/embedsidecar/embed"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

var _ embed.Reranker = (*Host)(nil)

// Rerank implements embed.Reranker. It splits calls as Embed does and has the same errors; embed.ErrNoReranker is the
// cause of the Configuration error "no_reranker" of a model that makes vectors. A text that cannot be sent at all fails
// the whole call.
func (h *Host) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	p, err := h.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { h.release(p) }()
	if !p.inst.desc.Reranks {
		return nil, configuration("no_reranker", fmt.Errorf("model %q: %w", p.inst.desc.Model, embed.ErrNoReranker))
	}
	limits := limitsOf(p.inst.desc)
	if limits.bytes -= len(query); limits.bytes < 0 {
		return nil, &embed.Error{Class: embed.Data, Code: "too_long", Err: fmt.Errorf(
			"a query of %d bytes is more than the plugin takes in one call", len(query))}
	}
	scores := make([]float32, 0, len(texts))
	err = limits.inBatches(texts, invalid, func(b *batch) error {
		part, err := h.rerank(ctx, &p, query, b)
		scores = append(scores, part...)
		return err
	})
	return scores, err
}

// rerank sends one batch and checks its answer.
func (h *Host) rerank(ctx context.Context, p *permit, query string, b *batch) (scores []float32, err error) {
	inst := p.inst
	var resp *pluginpb.RerankResponse
	err = h.exchange(ctx, p, exchange{
		batch: b, query: query, works: true,
		send: func(ctx context.Context) (err error) {
			resp, err = inst.rpc.Rerank(ctx, &pluginpb.RerankRequest{Model: inst.desc.Model, Query: query, Texts: b.texts},
				grpc.MaxCallRecvMsgSize(answerLimit(len(b.texts), inst.desc)))
			return err
		},
		read: func() (err error) { scores, err = readScores(resp, len(b.texts)); return err },
	})
	return scores, err
}

// readScores checks an answer.
func readScores(resp *pluginpb.RerankResponse, count int) ([]float32, error) {
	if raw := resp.GetScores(); len(raw) != 4*count {
		return nil, badAnswer("wrong_count", "the plugin answered %d texts with %d bytes of scores, want %d", count, len(raw),
			4*count)
	}
	scores := decode(resp.GetScores())
	for i, score := range scores {
		if math.IsNaN(float64(score)) || math.IsInf(float64(score), 0) {
			return nil, badAnswer("not_finite", "the score of text %d is no finite number", i)
		}
	}
	return scores, nil
}
