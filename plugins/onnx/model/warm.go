package model

import (
	"context"
	"fmt"
	"slices"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/embed"
)

// probeLengths are the lengths of the texts that warmUp compares, rising: short and long, around the widths of vector registers.
var probeLengths = []int{3, 4, 7, 9, 16, 17, 31, 40, 56}

// sameVector is how near the vectors of one text come when only rounding makes them differ, also in half precision.
const sameVector = 0.999

// likeness is the host's.
func (d Description) likeness(a, b []float32) float64 {
	return embed.Description{Sparse: d.Sparse}.Likeness(a, b)
}

// warmUp runs the network on its largest input and on some small ones, so that the first call finds its memory allocated.
// It returns whether a text gets the same vector, bit for bit, alone and padded among others, on one thread and on all, and whether
// it gets another one, by more than rounding. That depends on the library, on the processor and on the graph, so it is measured
// and not assumed.
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
			token = (token + 7919) % (m.tokenizer.maxID() + 1) // any tokens, the same at each start
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
				mixes = mixes || m.about.likeness(alone[0], among[i]) < sameVector
			}
		}
	}
	return deterministic, mixes, nil
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
	if err := l.run(session, texts, width); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	vectors := make([][]float32, len(texts))
	l.vectors(texts, width, func(i int, v []float32) { vectors[i] = slices.Clone(v) })
	return vectors, nil
}
