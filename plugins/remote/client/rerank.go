package client

import (
	"context"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Rerank scores texts by how well they answer a query. Scores are numbers of a width of one: requests, retries and the
// search for a text that breaks them are those of Embed. Texts without anything in them are not sent, as providers
// refuse these; they have the score of the worst that was.
func (c *Client) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	answers, err := c.answer(ctx, &job{client: c, query: true, asked: query}, "", texts)
	if err != nil {
		return nil, err
	}
	worst := float32(math.MaxFloat32)
	for i := range answers {
		if failed := answers[i].Err; failed != nil {
			return nil, status.Errorf(codes.InvalidArgument, "text %d: %s", i, failed.Message)
		}
		if !answers[i].Empty {
			worst = min(worst, answers[i].Vector[0])
		}
	}
	scores := make([]float32, len(answers))
	for i, a := range answers {
		switch {
		case !a.Empty:
			scores[i] = a.Vector[0]
		case worst < math.MaxFloat32:
			scores[i] = worst
		}
	}
	return scores, nil
}
