package model

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/embed"
)

// A lane is the memory of one run, allocated once and reused.
type lane struct {
	network *network
	inputs  []memory // by input of the network
	output  results
	pin     runtime.Pinner // C holds pointers into the slices during a run
}

// network is the ONNX sessions and the shapes of their inputs and outputs.
//
// Concurrent runs on one thread each have a higher throughput than one run on all threads, which synchronise after
// every step. A single text has a lower latency on all threads. So a small model for short texts has two sessions, each
// with its own copy of the weights.
type network struct {
	wide     *ort.DynamicAdvancedSession // a run uses all threads
	narrow   *ort.DynamicAdvancedSession // a run uses one thread; nil: only wide exists
	provider string                      // what computes
	inputs   []input
	elements int32 // the output's element type
	dims     int
	pooling  string // poolGraph: the output is a vector per text; otherwise one per token
	twice    bool   // poolSplade: the logarithm is taken twice
	alone    bool   // the graph accepts one text at a time
	keep     int    // poolSplade: numbers of a vector to keep; 0: all
}

func newLane(n *network, tokens int) *lane {
	l := &lane{network: n}
	l.output = newResults(tokens*n.dims, n.elements, &l.pin)
	for i := range n.inputs {
		l.inputs = append(l.inputs, n.inputs[i].memory(tokens, &l.pin))
	}
	return l
}

func (l *lane) close() { l.pin.Unpin() }

// lanes is a pool of lanes; a caller waits for a free one. It is last in, first out: the last one is still in the CPU's
// caches.
type lanes struct {
	mu   sync.Mutex
	idle []*lane
	back *sync.Cond
}

func newLanes(n *network, count, tokens int) *lanes {
	l := &lanes{}
	l.back = sync.NewCond(&l.mu)
	for range count {
		l.idle = append(l.idle, newLane(n, tokens))
	}
	return l
}

func (l *lanes) take() *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.idle) == 0 {
		l.back.Wait()
	}
	last := len(l.idle) - 1
	mine := l.idle[last]
	l.idle = l.idle[:last]
	return mine
}

func (l *lanes) give(mine *lane) {
	l.mu.Lock()
	l.idle = append(l.idle, mine)
	l.mu.Unlock()
	l.back.Signal()
}

// close frees all lanes; none may be in use.
func (l *lanes) close() {
	for _, mine := range l.idle {
		mine.close()
	}
}

// errMemory is wrapped by an error of run if the network ran out of memory.
var errMemory = errors.New("out of memory")

// run runs texts through a session, padded to width tokens. The output stays in the lane, for vectors.
func (l *lane) run(session *ort.DynamicAdvancedSession, kind embed.Kind, texts [][]int32, width int) (err error) {
	n := l.network
	count, dims := len(texts), n.dims
	outShape := ort.NewShape(int64(count), int64(width), int64(dims))
	if n.pooling == poolGraph || n.pooling == poolRerank {
		outShape = ort.NewShape(int64(count), int64(dims))
	}
	values := make([]ort.Value, 0, len(l.inputs)+1)
	defer func() {
		for _, value := range values {
			err = errors.Join(err, value.Destroy())
		}
	}()
	for k := range n.inputs {
		value, err := n.inputs[k].value(l.inputs[k], texts, width, kind)
		if err != nil {
			return fmt.Errorf("make input of %d texts, %d tokens wide: %w", count, width, err)
		}
		values = append(values, value)
	}
	out, err := l.output.value(outShape)
	if err != nil {
		return fmt.Errorf("make output of %d texts, %d tokens wide: %w", count, width, err)
	}
	values = append(values, out)
	if err := session.Run(values[:len(l.inputs)], values[len(l.inputs):]); err != nil {
		if text := err.Error(); strings.Contains(text, "allocat") || strings.Contains(text, "bad_alloc") {
			err = fmt.Errorf("%w: %w", errMemory, err)
		}
		return fmt.Errorf("run network on %d texts, %d tokens wide: %w", count, width, err)
	}
	l.output.widen(int(outShape.FlattenedSize()))
	return nil
}

// vectors calls vector for each text of the last run, in order. Its argument is valid only during the call.
func (l *lane) vectors(texts [][]int32, width int, vector func(i int, v []float32)) {
	n, dims := l.network, l.network.dims
	for i, tokens := range texts {
		switch n.pooling {
		case poolGraph, poolRerank:
			vector(i, l.output.numbers[i*dims:(i+1)*dims])
			continue
		case poolSplade:
			vector(i, splade(l.output.numbers[i*width*dims:(i+1)*width*dims], len(tokens), dims, n.keep, n.twice))
			continue
		}
		vector(i, pool(n.pooling, l.output.numbers[i*width*dims:(i+1)*width*dims], len(tokens), dims))
	}
}
