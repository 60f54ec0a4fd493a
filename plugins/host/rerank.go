package host

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

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
	var b batch
	send := func() error {
		part, err := h.rerank(ctx, &p, query, &b)
		scores, b = append(scores, part...), batch{}
		return err
	}
	for i, text := range texts {
		if err := limits.refuse(text); err != nil {
			return nil, &embed.Error{Class: embed.Data, Code: "invalid", Err: err}
		}
		if !limits.fits(&b, text) {
			if err := send(); err != nil {
				return nil, err
			}
		}
		b.add(i, text)
	}
	if len(b.texts) > 0 {
		err = send()
	}
	return scores, err
}

// rerank sends one batch and checks its answer.
func (h *Host) rerank(ctx context.Context, p *permit, query string, b *batch) ([]float32, error) {
	inst := p.inst
	inFlight := inst.texts.Add(int64(len(b.texts)))
	inFlightBytes := inst.bytes.Add(int64(b.bytes + len(query)*len(b.texts))) // it is read with each of them
	defer func() {
		inst.texts.Add(-int64(len(b.texts)))
		inst.bytes.Add(-int64(b.bytes + len(query)*len(b.texts)))
	}()
	limit := inst.slot.opts.CallTimeout(int(inFlight), int(inFlightBytes))
	call := sent{time.Now(), limit, inst.memory.Load()}
	h.stats.calls.Add(1)
	h.stats.texts.Add(uint64(len(b.texts)))
	callCtx, cancel := context.WithTimeout(ctx, limit)
	resp, err := inst.rpc.Rerank(callCtx, &pluginpb.RerankRequest{Model: inst.desc.Model, Query: query, Texts: b.texts},
		grpc.MaxCallRecvMsgSize(answerLimit(len(b.texts), inst.desc)))
	cancel()
	if err != nil {
		h.stats.failed.Add(1)
		return nil, h.explainCall(ctx, inst, append(slices.Clip(b.texts), query), err, call)
	}
	scores, err := readScores(resp, len(b.texts))
	if err != nil {
		h.stats.failed.Add(1)
		h.answeredBadly(inst, err)
		return nil, err
	}
	inst.bad.Store(0)
	inst.answered.Add(1)
	p.good = true
	return scores, nil
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
