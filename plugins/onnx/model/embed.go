package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// A batch is the memory of one call, which later calls reuse.
type batch struct {
	kind    embed.Kind
	tokens  []int32 // of all texts, one after the other
	texts   []encoded
	order   []int     // texts that have tokens, shortest first
	lengths []int     // of them
	sorted  [][]int32 // their tokens
}

type encoded struct{ begin, end int } // in batch.tokens

// Embed returns one result per text, in order: a vector of Dims numbers (for a sparse model, of embed.Pairs), or Empty
// for a text with only special tokens. Texts longer than MaxTokens are cut and marked. A text that the tokenizer cannot
// read gets an error of its own. If the context ends, Embed stops before the next run of the network. On error there
// are no partial results; the error is the context's, or an *embed.Error.
func (m *Model) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	if kind == embed.Query && m.settings.weights != nil {
		return m.weigh(ctx, texts)
	}
	b := m.batch(kind)
	defer m.scratch.Put(b)
	results := make([]embed.Result, len(texts))
	if err := m.encode(ctx, b, m.settings.prefixes[kind], texts, results); err != nil {
		return nil, err
	}
	if err := m.embed(ctx, b, results); err != nil {
		return nil, classed(ctx, err)
	}
	return results, nil
}

// classed classifies an error of a run.
func classed(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	whole := &embed.Error{Class: embed.Transient, Code: "run_failed", Err: err}
	if errors.Is(err, errMemory) {
		whole.Class, whole.Code = embed.Resource, "out_of_memory"
	}
	return whole
}

// encode fills the batch with the tokens of all texts and sorts the non-empty ones by length.
func (m *Model) encode(ctx context.Context, b *batch, prefix string, texts []string, results []embed.Result) error {
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin := len(b.tokens)
		tokens, info, err := m.tokenizer.encode(b.tokens, text)
		empty := info.content == 0
		if prefix != "" && !empty && err == nil {
			tokens, info, err = m.tokenizer.encode(b.tokens, prefix+text)
		}
		if err == nil && slices.Max(append(tokens[begin:len(tokens):len(tokens)], 0)) > m.last {
			err = errors.New("the text contains a special token that the model does not know")
		}
		if err != nil {
			results[i].Err = &embed.TextError{Class: embed.Data, Code: "tokenize", Message: err.Error()}
			b.texts = append(b.texts, encoded{begin, begin})
			continue
		}
		if empty {
			results[i].Empty = true
			b.texts = append(b.texts, encoded{begin, begin})
			continue
		}
		b.tokens = tokens
		b.texts = append(b.texts, encoded{begin, len(tokens)})
		b.order = append(b.order, i)
		results[i].Truncated, results[i].Tokens = info.truncated, len(tokens)-begin
	}
	b.sort(results)
	return nil
}

// sort sorts the texts that have tokens by length.
func (b *batch) sort(results []embed.Result) {
	slices.SortStableFunc(b.order, func(x, y int) int { return cmp.Compare(results[x].Tokens, results[y].Tokens) })
	for _, i := range b.order {
		b.lengths = append(b.lengths, results[i].Tokens)
		b.sorted = append(b.sorted, b.tokens[b.texts[i].begin:b.texts[i].end])
	}
}

// batch returns an empty batch. The caller returns it with Put.
func (m *Model) batch(kind embed.Kind) *batch {
	b, ok := m.scratch.Get().(*batch)
	if !ok {
		b = &batch{}
	}
	*b = batch{kind, b.tokens[:0], b.texts[:0], b.order[:0], b.lengths[:0], b.sorted[:0]}
	return b
}

// embed runs the pieces of a batch, several at the same time if lanes are free.
func (m *Model) embed(ctx context.Context, b *batch, results []embed.Result) error {
	pieces := cut(b.lengths, budget(b.lengths, m.budget, m.turns.places))
	var left atomic.Int64
	for _, p := range pieces {
		left.Add(int64(p.cost()))
	}
	came := int(m.calls.Add(1))
	dims := m.about.Dims
	var vectors []float32 // the caller's
	if !m.about.Sparse {
		vectors = make([]float32, len(b.order)*dims)
	}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	callers := m.turns.places
	if m.network.narrow == nil {
		callers++ // one makes vectors while the others run
	}
	for range min(callers, len(pieces)) {
		group.Go(func() error {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(pieces) {
					return nil
				}
				p := pieces[k]
				err := m.run(ctx, came, int(left.Load()), len(pieces) == 1, b.kind, b.sorted[p.first:p.end], p.width,
					func(i int, v []float32) {
						place := p.first + i
						if m.about.Sparse {
							if m.settings.normalize {
								normalize(v, true)
							}
							results[b.order[place]].Vector = v
							return
						}
						for _, layer := range m.settings.dense {
							v = layer.apply(v)
						}
						if m.settings.layerNorm != nil && *m.settings.layerNorm {
							layerNorm(v)
						}
						vector := vectors[place*dims : (place+1)*dims : (place+1)*dims]
						copy(vector, v) // the first result
						if m.settings.normalize {
							normalize(vector, false)
						}
						results[b.order[place]].Vector = vector
					})
				if err != nil {
					return fmt.Errorf("embed %d texts: %w", p.end-p.first, err)
				}
				left.Add(int64(-p.cost()))
			}
		})
	}
	return group.Wait()
}

// Tokenize returns the ends of all tokens of texts.
func (m *Model) Tokenize(ctx context.Context, texts []string) (t embed.Tokens, err error) {
	t.Ends = make([][]int, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		if t.Ends[i], err = m.tokenizer.ends(text); err != nil {
			return t, &embed.Error{Class: embed.Data, Code: "tokenize", Err: err}
		}
	}
	prefix, err := m.tokenizer.ends(m.settings.prefixes[embed.Document])
	t.Around = m.tokenizer.around() + len(prefix)
	return t, wrap.Errorf(err, "prefix of documents")
}
