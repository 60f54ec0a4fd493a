package model

import (
	"context"
	"errors"
	"math"

	"github.com/embedsidecar/embedsidecar/embed"
)

// Rerank returns a score for each text, in order: how well it answers the query. If both exceed the model's limit, the
// longer one is cut first, like the reference, so a query of up to half of the limit stays whole. Errors are those of
// Embed.
func (m *Model) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	b := m.batch(embed.Document)
	defer m.scratch.Put(b)
	results := make([]embed.Result, len(texts))
	if err := m.encodePairs(ctx, b, query, texts, results); err != nil {
		return nil, err
	}
	if err := m.embed(ctx, b, results); err != nil {
		return nil, classed(ctx, err)
	}
	given := make([]float32, len(texts))
	for i, r := range results {
		given[i] = r.Vector[0]
		if !m.settings.raw {
			given[i] = float32(1 / (1 + math.Exp(-float64(r.Vector[0]))))
		}
	}
	return given, nil
}

// More tokens than any model reads of a query, and than any text has.
const maxQueryTokens, maxTextTokens = 2 * MaxTokensLimit, 1 << 30

// encodePairs fills the batch with the tokens of all pairs.
func (m *Model) encodePairs(ctx context.Context, b *batch, query string, texts []string, results []embed.Result) error {
	wrong := func(err error) error { return &embed.Error{Class: embed.Data, Code: "tokenize", Err: err} }
	asked, err := m.tokenizer.bare(query, maxQueryTokens)
	if err != nil {
		return wrong(err)
	}
	room := m.settings.maxTokens - m.pair.around
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return err
		}
		// One more than fits shows that a text is longer, and one more than the query's shows which is longer.
		most := max(room, len(asked)) + 1
		if m.settings.truncateLeft {
			most = maxTextTokens
		}
		tokens, err := m.tokenizer.bare(text, most)
		if err != nil {
			return wrong(err)
		}
		ofQuery, ofText := longestFirst(len(asked), len(tokens), room)
		begin := len(b.tokens)
		b.tokens = m.pair.append(b.tokens, m.side(asked, ofQuery), m.side(tokens, ofText))
		for _, token := range b.tokens[begin:] {
			if token&^second > m.last {
				return wrong(errors.New("a text holds a special token that the model does not know"))
			}
		}
		b.texts = append(b.texts, encoded{begin, len(b.tokens)})
		b.order = append(b.order, i)
		results[i].Tokens = len(b.tokens) - begin
	}
	b.sort(results)
	return nil
}

// side returns count tokens of a text, from the side that is kept.
func (m *Model) side(tokens []int32, count int) []int32 {
	if m.settings.truncateLeft {
		return tokens[len(tokens)-count:]
	}
	return tokens[:count]
}
