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

// probeLengths are the lengths of the texts that warmUp compares, rising: short and long, around the widths of vector
// registers.
var probeLengths = []int{3, 4, 7, 9, 16, 17, 31, 40, 56}

// sameVector is how near the vectors of one text come when only rounding makes them differ, also in half precision.
const sameVector = 0.999

// sameInt8 is how near they come in 8 bits beside copies: nothing but the order of the last additions may differ.
const sameInt8 = 0.9999

// likeness is the host's.
func (d Description) likeness(a, b []float32) float64 {
	return embed.Description{Sparse: d.Sparse}.Likeness(a, b)
}

// differ reports whether two vectors of one text differ by more than rounding, or the scores of one pair.
func (d Description) differ(a, b []float32) bool {
	if !d.Reranks {
		return d.likeness(a, b) < sameVector
	}
	const sameScore = 0.02
	return math.Abs(float64(a[0]-b[0])) > sameScore*max(1, math.Abs(float64(a[0])))
}

// warmUp runs the network on its largest input and on some small ones, so that the first call finds its memory
// allocated. It returns whether a text gets the same vector, bit for bit, alone and padded among others, on one
// thread and on all, and whether it gets another one, by more than rounding. That depends on the library, on the
// processor and on the graph, so it is measured and not assumed.
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
			token = (token + 7919) % (m.last + 1) // any tokens, the same at each start
			text[i] = token
		}
		texts = append(texts, text)
	}
	// As much beside each text as a piece may hold: where every text runs by itself it has no neighbours here either.
	var among [][]float32
	for first := 0; first < len(texts); {
		end := first + 1
		for end < len(texts) && (end+1-first)*len(texts[end]) <= m.budget { // each is at least as long as those before it
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

// copiesTokens is how many tokens compareCopies puts into a run: rows for more than a block of 32, and some left over.
const copiesTokens = 80

// compareCopies runs each text beside copies of itself, and compares them with the vector that it has alone. The
// scale of activations is then what it is alone, so in 8 bits too every copy has that vector. It returns a WrongError
// when one has not.
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

// checkFinite refuses a model that makes no numbers of an ordinary text, as it then does of all. A token that is broken
// alone is found with the texts that hold it.
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
