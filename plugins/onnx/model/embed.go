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
)

// A batch is the memory of one call, kept for the next.
type batch struct {
	kind    embed.Kind
	tokens  []int32 // of all texts, one after the other
	texts   []encoded
	order   []int     // texts that have tokens, shortest first
	lengths []int     // of them
	sorted  [][]int32 // their tokens
}

type encoded struct{ begin, end int } // in batch.tokens

// Embed returns one result per text, in the order given: a vector of Dims numbers, of a sparse model one of pairs
// (embed.Pairs), or Empty for a text without a token but special ones. Texts longer than MaxTokens are cut and
// marked. A text that the tokenizer cannot read gets an error of its own. It stops between two runs of the network
// when the context ends. On error there are no partial results; the error is the context's, or an *embed.Error.
func (m *Model) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
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

// classed gives an error of a run its class.
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

// encode fills the batch with the tokens of all texts and sorts those that have any.
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
			err = errors.New("the text holds a special token that the model does not know")
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

// sort puts the texts that have tokens in the order of their lengths.
func (b *batch) sort(results []embed.Result) {
	slices.SortStableFunc(b.order, func(x, y int) int { return cmp.Compare(results[x].Tokens, results[y].Tokens) })
	for _, i := range b.order {
		b.lengths = append(b.lengths, results[i].Tokens)
		b.sorted = append(b.sorted, b.tokens[b.texts[i].begin:b.texts[i].end])
	}
}

// batch is an empty one, for the memory of which Put is to be called.
func (m *Model) batch(kind embed.Kind) *batch {
	b, ok := m.scratch.Get().(*batch)
	if !ok {
		b = &batch{}
	}
	*b = batch{kind, b.tokens[:0], b.texts[:0], b.order[:0], b.lengths[:0], b.sorted[:0]}
	return b
}

// embed runs the pieces of a batch, several at once if there are lanes for it.
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
		callers++ // it makes vectors while the others run
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
						copy(vector, v) // the first of them
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

// TokenEnds returns, for each text, the offset in bytes after each of its tokens, and how many tokens are put around
// every document: the special ones, and those of the prefix.
func (m *Model) TokenEnds(ctx context.Context, texts []string) (ends [][]int, around int, err error) {
	ends = make([][]int, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		if ends[i], err = m.tokenizer.ends(text); err != nil {
			return nil, 0, &embed.Error{Class: embed.Data, Code: "tokenize", Err: err}
		}
	}
	prefix, err := m.tokenizer.ends(m.settings.prefixes[embed.Document])
	if err != nil {
		return nil, 0, fmt.Errorf("prefix of documents: %w", err)
	}
	return ends, m.tokenizer.around() + len(prefix), nil
}

// A piece is what one run of the network takes: texts next to each other in the order of length, padded to the longest.
type piece struct {
	first, end int // of the sorted texts
	width      int // tokens of the longest
}

// cost is how long a piece runs, in tokens; see cut.
func (p piece) cost() int { return (p.end-p.first)*p.width + runOverhead }

const (
	// pieceTokens bounds a piece. Of 512, 1024, 2048 and 4096 it was the fastest, because less of it is padding, and it
	// keeps what a small call waits for short.
	pieceTokens = 512
	// acceleratorTokens is the same for other processors than the CPU, which small pieces would leave idle.
	acceleratorTokens = 16384
	// runOverhead is what a run costs besides its tokens, as a number of tokens that take as long.
	runOverhead = 10
	// smallestPiece is worth a run of its own when there are places for more of them.
	smallestPiece = 64
	// smallCall bounds what runs at once though all places are taken: a text as long as most models take, or a few short
	// ones.
	smallCall = 256 + runOverhead
)

// budget returns how many tokens a piece may have: at most most, and less in a small call, so that all places get
// something to do.
func budget(lengths []int, most, places int) int {
	if places == 1 || len(lengths) < 2 {
		return most
	}
	tokens := 0
	for _, length := range lengths {
		tokens += length
	}
	// Texts are not divided: the longest may be what a place has more than its share.
	return min(most, max(smallestPiece, tokens/places+lengths[len(lengths)-1]))
}

// cut divides texts into the pieces that take the least time together: padding a text to a longer neighbour's length
// costs tokens, and running it apart costs an overhead. lengths are sorted, shortest first; none is 0. No piece holds
// more than budget tokens, except for a single text that is longer.
func cut(lengths []int, budget int) []piece {
	// best[i] is the least cost of the first i texts, and from[i] where their last piece begins. Looking back ends at the
	// budget, so this takes len(lengths)*budget/length steps.
	best, from := make([]int, len(lengths)+1), make([]int, len(lengths)+1)
	for i := 1; i <= len(lengths); i++ {
		width := lengths[i-1]
		for j := i - 1; j >= 0; j-- {
			p := piece{j, i, width}
			if j < i-1 && (i-j)*width > budget {
				break
			}
			if cost := best[j] + p.cost(); j == i-1 || cost < best[i] {
				best[i], from[i] = cost, j
			}
		}
	}
	var pieces []piece
	for end := len(lengths); end > 0; end = from[end] {
		pieces = append(pieces, piece{from[end], end, lengths[end-1]})
	}
	return pieces // longest first
}
