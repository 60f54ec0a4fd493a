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

// A lane is the memory of one run at a time: allocated once, used for every run.
type lane struct {
	network *network
	inputs  []memory // by input of the network
	output  results
	pin     runtime.Pinner // C holds pointers into the slices for the time of a run
}

// network is what runs: the sessions and the shapes they take and give.
//
// Runs on one thread each, as many at a time as there are threads, do more in the same time than one run on all
// threads, which wait for each other after every step. A text that comes alone is sooner done by all threads
// together. So the weights of a small model, of short texts, are held twice.
type network struct {
	wide     *ort.DynamicAdvancedSession // a run takes all threads
	narrow   *ort.DynamicAdvancedSession // a run takes one; nil: there is only the wide one
	provider string                      // what computes
	inputs   []input
	elements int32 // the type of what comes out
	dims     int
	pooling  string // poolGraph: the output is a vector per text; otherwise one per token
	twice    bool   // poolSplade: the logarithm is taken twice
	alone    bool   // the graph takes one text at a time
	keep     int    // poolSplade: numbers of a vector that are kept; 0: all
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

// lanes hands out lanes; who finds none waits. The one given back last is taken first: it is still in the CPU's caches.
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

// errMemory is in the chain of an error of run when the network found no memory.
var errMemory = errors.New("out of memory")

// run sends texts through a session of the network, padded to width tokens. What comes out stays in the lane, for
// vectors.
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

// vectors calls vector for each of the texts that run has just had, in order; what vector gets is valid for the time
// of the call.
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
