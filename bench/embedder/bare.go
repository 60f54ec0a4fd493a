package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

// bare is ONNX Runtime and nothing else: texts are tokens already, sorted by length and cut into batches, and what
// the network answers is looked at by nobody.
type bare struct {
	session *ort.DynamicAdvancedSession
	texts   [][]int32 // sorted, shortest first
	lanes   []*lane   // as many as there are runs at a time
	budget  int       // tokens in a batch, whichever is fastest
}

// lane is the memory of one run at a time.
type lane struct {
	inputs [3][]int64
	output []float32
}

const maxTokens, dims = 256, 384

// budgets are the batch sizes, in tokens, that it may choose from.
var budgets = []int{256, 512, 1024, 2048, 4096}

// newBare makes the session, for so many runs at a time of so many threads each. The library must be loaded.
func newBare(folder string, runs, threads int, spin string, tokenizer *wordpiece.Tokenizer, texts []string) (*bare,
	error,
) {
	b := &bare{}
	for _, text := range texts {
		ids, _ := tokenizer.Encode(nil, text, maxTokens)
		b.texts = append(b.texts, ids)
	}
	slices.SortFunc(b.texts, func(x, y []int32) int { return cmp.Compare(len(x), len(y)) })
	most := budgets[len(budgets)-1]
	for range runs {
		l := &lane{output: make([]float32, most*dims)}
		for i := range l.inputs {
			l.inputs[i] = make([]int64, most)
		}
		b.lanes = append(b.lanes, l)
	}
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, fmt.Errorf("make session options: %w", err)
	}
	err = errors.Join(options.SetIntraOpNumThreads(threads), options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll), options.SetMemPattern(false),
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", spin))
	if err != nil {
		return nil, err
	}
	defer func() { _ = options.Destroy() }()
	b.session, err = ort.NewDynamicAdvancedSession(filepath.Join(folder, "model.onnx"),
		[]string{"input_ids", "attention_mask", "token_type_ids"}, []string{"last_hidden_state"}, options)
	return b, err
}

// run sends texts of one batch through the network, padded to the longest.
func (b *bare) run(l *lane, texts [][]int32) error {
	width := len(texts[len(texts)-1])
	ids, mask, types := l.inputs[0][:0], l.inputs[1][:0], l.inputs[2][:0]
	for _, text := range texts {
		for place := range width {
			id, isText := int64(0), int64(0)
			if place < len(text) {
				id, isText = int64(text[place]), 1
			}
			ids, mask, types = append(ids, id), append(mask, isText), append(types, 0)
		}
	}
	shape := ort.NewShape(int64(len(texts)), int64(width))
	var values []ort.Value
	defer func() {
		for _, value := range values {
			_ = value.Destroy()
		}
	}()
	for _, in := range [][]int64{ids, mask, types} {
		value, err := ort.NewTensor(shape, in)
		if err != nil {
			return err
		}
		values = append(values, value)
	}
	out, err := ort.NewTensor(ort.NewShape(int64(len(texts)), int64(width), dims), l.output)
	if err != nil {
		return err
	}
	values = append(values, out)
	return b.session.Run(values[:3], values[3:])
}

// all runs every text in batches of at most so many tokens, padding included, and returns how long that took.
func (b *bare) all(budget int) (time.Duration, error) {
	began := time.Now()
	batches := make(chan [][]int32, len(b.texts))
	for first := 0; first < len(b.texts); {
		end := first + 1
		for end < len(b.texts) && (end+1-first)*len(b.texts[end]) <= budget {
			end++
		}
		batches <- b.texts[first:end]
		first = end
	}
	close(batches)
	var group errgroup.Group
	for _, l := range b.lanes {
		group.Go(func() error {
			for batch := range batches {
				if err := b.run(l, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(began), err
}
