package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	ort "github.com/yalue/onnxruntime_go"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/wordpiece"
)

// loop is ONNX Runtime alone: texts are already tokenized, sorted by length and cut into batches, and the output is
// ignored.
type loop struct {
	session   *ort.DynamicAdvancedSession
	tokenizer *wordpiece.Tokenizer
	texts     [][]int32 // sorted, shortest first
	lanes     []*lane   // one for each concurrent run
	budget    int       // tokens in a batch, whichever is fastest
}

// lane is the memory of one run.
type lane struct {
	inputs [3][]int64
	output []float32
}

const maxTokens, modelDims = 256, 384

// budgets are the candidate batch sizes, in tokens.
var budgets = []int{256, 512, 1024, 2048, 4096}

// loops are the variants: one run at a time on all threads, which sleep or spin while they wait, and one run per
// thread.
var loops = []struct {
	name, spin   string
	runForThread bool
}{
	{name: "bare loop, one run at a time", spin: "0"},
	{name: "bare loop, threads that spin", spin: "1"},
	{name: "bare loop, a run for a thread", spin: "0", runForThread: true},
}

// newLoop makes the session, for one run at a time or one for a thread. The library must be loaded.
func newLoop(folder string, runForThread bool, spin string, texts []string) *loop {
	runs, threads := 1, runtime.GOMAXPROCS(0)
	if runForThread {
		runs, threads = threads, runs
	}
	b := &loop{tokenizer: must(wordpiece.New(must(os.ReadFile(filepath.Join(folder, "tokenizer.json")))))}
	for _, text := range texts {
		b.texts = append(b.texts, b.tokens(text))
	}
	slices.SortFunc(b.texts, func(x, y []int32) int { return cmp.Compare(len(x), len(y)) })
	most := slices.Max(budgets)
	for range runs {
		l := &lane{output: make([]float32, most*modelDims)}
		for i := range l.inputs {
			l.inputs[i] = make([]int64, most)
		}
		b.lanes = append(b.lanes, l)
	}
	options := must(ort.NewSessionOptions())
	defer func() { _ = options.Destroy() }()
	check(errors.Join(options.SetIntraOpNumThreads(threads), options.SetInterOpNumThreads(1),
		options.SetGraphOptimizationLevel(ort.GraphOptimizationLevelEnableAll), options.SetMemPattern(false),
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", spin)))
	b.session = must(ort.NewDynamicAdvancedSession(filepath.Join(folder, "model.onnx"),
		[]string{"input_ids", "attention_mask", "token_type_ids"}, []string{"last_hidden_state"}, options))
	b.budget = fastest(budgets, b.all)
	return b
}

func (b *loop) tokens(text string) []int32 {
	ids, _ := b.tokenizer.Encode(nil, text, maxTokens)
	return ids
}

// run sends texts of one batch through the network, padded to the longest.
func (b *loop) run(l *lane, texts [][]int32) error {
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
	out, err := ort.NewTensor(ort.NewShape(int64(len(texts)), int64(width), modelDims), l.output)
	if err != nil {
		return err
	}
	values = append(values, out)
	return b.session.Run(values[:3], values[3:])
}

// one tokenizes a text and runs it.
func (b *loop) one(text string) { check(b.run(b.lanes[0], [][]int32{b.tokens(text)})) }

// all runs every text in batches of at most so many tokens, padding included.
func (b *loop) all(budget int) {
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
	check(group.Wait())
}

// fastest returns the value with the shortest run, after a warm-up.
func fastest(values []int, run func(int)) (best int) {
	run(values[0])
	least := time.Duration(1<<63 - 1)
	for _, value := range values {
		began := time.Now()
		run(value)
		if took := time.Since(began); took < least {
			best, least = value, took
		}
	}
	return best
}
