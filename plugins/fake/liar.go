package main

import (
	"context"
	"errors"
	"time"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/plugins/sdk"
)

// liar stands between the host and the honest embedder and gives the answers that the SDK would never let through.
type liar struct {
	pluginpb.EmbedderServer
	embedder *embedder
}

// Embed implements pluginpb.EmbedderServer.
func (l *liar) Embed(ctx context.Context, req *pluginpb.EmbedRequest) (*pluginpb.EmbedResponse, error) {
	n := l.embedder.number.Add(1)
	f := &l.embedder.faults
	resp, err := l.EmbedderServer.Embed(ctx, req)
	if err != nil {
		return nil, err
	}
	due := func(every uint64) bool { return every > 0 && n%every == 0 }
	switch row := int(resp.Dims) * 4; {
	case due(f.permute) && len(req.GetTexts()) > 1 && resp.Sparse != nil:
		s := resp.Sparse
		row = int(s.Counts[0]) * 4
		s.Counts, s.Indices, s.Values = append(s.Counts[1:], s.Counts[0]), append(s.Indices[row:], s.Indices[:row]...),
			append(s.Values[row:], s.Values[:row]...)
	case due(f.permute) && len(req.GetTexts()) > 1:
		resp.Vectors = append(resp.Vectors[row:], resp.Vectors[:row]...)
	case due(f.unavailable):
		return nil, sdk.Status(sdk.Again(errors.New("told to be unavailable"+key()), 20*time.Millisecond))
	case due(f.wrongCount) && resp.Sparse != nil:
		resp.Sparse.Counts = resp.Sparse.Counts[1:]
	case due(f.wrongCount):
		resp.Vectors = resp.Vectors[int(resp.Dims)*4:]
	case due(f.wrongDims):
		resp.Dims++
		resp.Vectors = make([]byte, len(req.GetTexts())*int(resp.Dims)*4)
	case due(f.garbage):
		resp.Vectors = append(resp.Vectors, 1, 2, 3)
		resp.Outcomes = append(resp.Outcomes, &pluginpb.Outcome{Index: 1 << 31, Empty: true})
	case due(f.huge):
		resp.Vectors = make([]byte, 32<<20)
	}
	return resp, nil
}

// Rerank implements pluginpb.EmbedderServer.
func (l *liar) Rerank(ctx context.Context, req *pluginpb.RerankRequest) (*pluginpb.RerankResponse, error) {
	resp, err := l.EmbedderServer.Rerank(ctx, req)
	if every := l.embedder.faults.permute; err == nil && every > 0 && l.embedder.number.Add(1)%every == 0 {
		const one = 4 // bytes of a score
		resp.Scores = append(resp.Scores[one:], resp.Scores[:one]...)
	}
	return resp, err
}
