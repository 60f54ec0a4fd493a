package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// probeLengths are the lengths of the texts that warmUp compares, in ascending order: short and long, around the widths
// of vector registers.
var probeLengths = []int{3, 4, 7, 9, 16, 17, 31, 40, 56}

// sameVector is the least likeness of two vectors of one text that differ only by rounding, also in half precision.
const sameVector = 0.999

// sameInt8 is the same for 8 bits among copies: only the order of the last additions may differ.
const sameInt8 = 0.9999

// likeness is the host's likeness of two vectors.
func (d Description) likeness(a, b []float32) float64 {
	return embed.Description{Sparse: d.Sparse}.Likeness(a, b)
}

// differ reports whether two vectors of a text, or two scores of a pair, differ by more than rounding.
func (d Description) differ(a, b []float32) bool {
	if !d.Reranks {
		return d.likeness(a, b) < sameVector
	}
	const sameScore = 0.02
	return math.Abs(float64(a[0]-b[0])) > sameScore*max(1, math.Abs(float64(a[0])))
}

// warmUp runs the network on its largest input and on some small ones, which allocates its memory. deterministic: a
// text gets bit for bit the same vector alone and padded in a batch, on one thread and on all. mixes: its vectors
// differ by more than rounding. This depends on library, processor and graph, so it is measured.
func (m *Model) warmUp(ctx context.Context) (deterministic, mixes bool, err error) {
	longest := make([]int32, m.settings.maxTokens)
	group, inner := errgroup.WithContext(ctx)
	for range m.turns.places {
		group.Go(func() error {
			_, err := m.probe(inner, m.network.shared(), slices.Repeat([][]int32{longest}, max(1, m.budget/len(longest))))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return false, false, err
	}
	var texts [][]int32
	token := int32(0)
	for _, length := range probeLengths {
		text := make([]int32, min(length, m.settings.maxTokens))
		for i := range text {
			token = (token + 7919) % (m.last + 1) // arbitrary tokens, the same at each start
			text[i] = token
		}
		texts = append(texts, text)
	}
	// Each text with as many others as fit into a piece: none if every text runs separately.
	var among [][]float32
	for first := 0; first < len(texts); {
		end := first + 1
		for end < len(texts) && (end+1-first)*len(texts[end]) <= m.budget { // each is at least as long as the previous ones
			end++
		}
		vectors, err := m.probe(ctx, m.network.shared(), texts[first:end])
		if err != nil {
			return false, false, err
		}
		among, first = append(among, vectors...), end
	}
	deterministic = true
	for i, text := range texts {
		for _, session := range []*ort.DynamicAdvancedSession{m.network.wide, m.network.shared()} {
			alone, err := m.probe(ctx, session, [][]int32{text})
			if err != nil {
				return false, false, err
			}
			if !slices.Equal(alone[0], among[i]) {
				deterministic = false
				mixes = mixes || m.about.differ(alone[0], among[i])
			}
		}
	}
	if m.about.Precision == onnxfile.Int8 && !m.network.alone {
		return deterministic, mixes, m.compareCopies(ctx, texts, among)
	}
	return deterministic, mixes, nil
}

// copiesTokens is the number of tokens in a run of compareCopies: more than a block of 32 rows, with a remainder.
const copiesTokens = 80

// compareCopies runs each text with copies of itself, and compares the vectors with that of a single run. The
// quantization scale is then the same, so even in 8 bits the vectors must be equal. Otherwise it returns a WrongError.
func (m *Model) compareCopies(ctx context.Context, texts [][]int32, alone [][]float32) error {
	for i := 0; i < len(texts); i += 2 {
		text := texts[i]
		count := min((copiesTokens+len(text)-1)/len(text), m.settings.maxTokens/len(text))
		copies, err := m.probe(ctx, m.network.wide, slices.Repeat([][]int32{text}, count))
		if err != nil {
			return err
		}
		for k, vector := range copies {
			if like := m.about.likeness(vector, alone[i]); !(like >= sameInt8) {
				return &WrongError{
					m.about.Library,
					fmt.Sprintf("%s: a text of %d tokens has another vector alone than as number %d of %d copies (likeness %.4f)",
						onnxfile.Int8, len(text), k+1, count, like),
				}
			}
		}
	}
	return nil
}

// checkFinite refuses a model that returns non-finite numbers for an ordinary text. A single broken token is detected
// with the texts that contain it.
func (m *Model) checkFinite(ctx context.Context, text []int32) error {
	vectors, err := m.probe(ctx, m.network.shared(), [][]int32{text})
	if err != nil {
		return err
	}
	for _, x := range vectors[0] {
		if x-x != 0 {
			return errors.New("it gives numbers that are not finite: its weights are damaged, or overflow in 16 bits")
		}
	}
	return nil
}

// probe runs texts in one piece and returns their vectors.
func (m *Model) probe(ctx context.Context, session *ort.DynamicAdvancedSession, texts [][]int32) ([][]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	width := 0
	for _, text := range texts {
		width = max(width, len(text))
	}
	l := m.lanes.take()
	defer m.lanes.give(l)
	if err := l.run(session, embed.Document, texts, width); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	vectors := make([][]float32, len(texts))
	l.vectors(texts, width, func(i int, v []float32) { vectors[i] = slices.Clone(v) })
	return vectors, nil
}
