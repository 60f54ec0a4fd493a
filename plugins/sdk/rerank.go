package sdk

import (
	"context"
	"encoding/binary"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Reranker is what an Embedder implements besides that offers models with Reranks.
type Reranker interface {
	// Rerank returns one score for each text, in the order given: how well it answers the query, the larger the better.
	// Only scores for one query compare. Texts and errors are those of Embed; the query is not empty.
	Rerank(ctx context.Context, model, query string, texts []string) ([]float32, error)
}

// Rerank answers for an Embedder that is a Reranker.
func (s *server) Rerank(ctx context.Context, req *pluginpb.RerankRequest) (resp *pluginpb.RerankResponse, err error) {
	defer s.recovered("Rerank", &err)
	m, err := s.model(ctx, req.GetModel())
	if err != nil {
		return nil, Status(err)
	}
	impl, ok := s.impl.(Reranker)
	if !ok || !m.Reranks {
		return nil, status.Error(codes.Unimplemented, "the model is no reranker: it gives no scores")
	}
	if req.GetQuery() == "" || len(req.GetTexts()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "no query, or no texts")
	}
	scores, err := impl.Rerank(ctx, m.Name, req.GetQuery(), req.GetTexts())
	if err != nil {
		return nil, Status(err)
	}
	if len(scores) != len(req.GetTexts()) {
		return nil, status.Errorf(codes.Internal, "the reranker gave %d scores for %d texts", len(scores), len(req.GetTexts()))
	}
	resp = &pluginpb.RerankResponse{Scores: make([]byte, 0, 4*len(scores))}
	for _, score := range scores {
		resp.Scores = binary.LittleEndian.AppendUint32(resp.Scores, math.Float32bits(score))
	}
	return resp, nil
}
