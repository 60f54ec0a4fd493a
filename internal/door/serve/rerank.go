package serve

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/search"
)

// rerankPath is that of Hugging Face's Text Embeddings Inference, so that its clients work here.
const rerankPath = "/rerank"

// rerankRequest is TEI's, with one word more: model.
type rerankRequest struct {
	Query  string   `json:"query" doc:"What the texts are to answer"`
	Texts  []string `json:"texts" maxItems:"1000" doc:"To be scored"`
	Model  string   `json:"model,omitempty" doc:"One of the rerankers of the configuration. Absent: the default"`
	Return bool     `json:"return_text,omitempty" doc:"Have the texts in the answer"`

	Truncate  *bool  `json:"truncate,omitempty" doc:"Long texts are always cut"`
	Direction string `json:"truncation_direction,omitempty" doc:"Ignored: as the model cuts"`
	Raw       bool   `json:"raw_scores,omitempty" doc:"Only false: scores are as the model gives them"`
}

// rank is a text of the answer.
type rank struct {
	Index int     `json:"index"`
	Text  string  `json:"text,omitempty"`
	Score float32 `json:"score"`
}

// rerank answers POST /rerank.
func (a *api) rerank(ctx context.Context, _ *struct{}) ([]rank, error) {
	var req rerankRequest
	if err := read(ctx, &req, true); err != nil {
		return nil, err
	}
	if err := a.checkRerank(&req); err != nil {
		return nil, err
	}
	who, _ := gate.CallerOf(ctx)
	scores, err := a.Backend.ScoreBy(ctx, who.Pipelines, req.Model, req.Query, req.Texts)
	if err != nil {
		return nil, noModel(req.Model, err)
	}
	ranks := make([]rank, len(scores))
	for i, score := range scores {
		ranks[i] = rank{Index: i, Score: score}
		if req.Return {
			ranks[i].Text = req.Texts[i]
		}
	}
	slices.SortStableFunc(ranks, func(x, y rank) int { return cmp.Compare(y.Score, x.Score) })
	return ranks, nil
}

func (a *api) checkRerank(req *rerankRequest) error {
	switch {
	case strings.TrimSpace(req.Query) == "":
		return refuse("query", "missing", "query is missing: what the texts are to answer")
	case len(req.Texts) == 0 || len(req.Texts) > search.MaxReranked:
		return refuse("texts", "invalid_value", "texts: expected 1 to %d, not %d", search.MaxReranked, len(req.Texts))
	case req.Raw:
		return refuse("raw_scores", "invalid_value", "raw_scores: scores are as the model gives them")
	}
	for i, text := range append(slices.Clip(req.Texts), req.Query) {
		if len(text) > a.TextBytes {
			return refuse("texts", "too_long", "text %d has %d bytes, %d are possible", i, len(text), a.TextBytes)
		}
	}
	return nil
}
