package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/x448/float16"
	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// An input is an input of the graph: numbers for each token, a task number, or an empty tensor.
type input struct {
	onnxfile.Port

	fill  fill                 // value per token; nil: not an input of tokens
	tasks map[embed.Kind]int64 // task number by kind; nil: not a task input
}

// fill returns the value of an input at a token.
type fill func(place int, token int32, isText bool) int64

// fills are the inputs of tokens by name. Padding has token 0 and mask 0.
var fills = map[string]fill{
	"input_ids": func(_ int, token int32, _ bool) int64 { return int64(token &^ second) },
	"attention_mask": func(_ int, _ int32, isText bool) int64 {
		if isText {
			return 1
		}
		return 0
	},
	"token_type_ids": func(_ int, token int32, _ bool) int64 {
		if token&second != 0 {
			return 1
		}
		return 0
	},
	"position_ids": func(place int, _ int32, _ bool) int64 { return int64(place) },
}

const taskInput = "task_id"

// newInput makes the input for a port of the graph.
func newInput(in onnxfile.Port, s *settings) (input, error) {
	whole := in.Elements == onnxfile.Int64 || in.Elements == onnxfile.Int32
	made := input{Port: in, fill: fills[in.Name]}
	switch {
	case made.fill != nil && whole:
		if len(in.Dims) != 2 || in.Dims[1] > 0 || in.Dims[0] > 1 {
			return made, fmt.Errorf("input %s is not for any number of texts and tokens: export the model with dynamic axes", in)
		}
		return made, nil
	case in.Name == taskInput && whole && len(in.Dims) < 2:
		if made.tasks = s.tasks; made.tasks == nil {
			return made, fmt.Errorf("input %s: lora_adaptations of config.json does not list %s and %s, so nothing says which "+
				"task documents and queries are", in, documentTask, queryTask)
		}
		return made, nil
	case strings.HasPrefix(in.Name, "past_key_values.") && len(in.Dims) == 4 && in.Dims[1] > 0 && in.Dims[3] > 0 &&
		(in.Elements == onnxfile.Float32 || in.Elements == onnxfile.Float16):
		return made, nil // past keys and values, which are empty
	}
	return made, fmt.Errorf("input %s is not supported: want input_ids, and perhaps attention_mask, token_type_ids and "+
		"position_ids, all of int64 or int32, %s and past_key_values", in, taskInput)
}

// isAlone reports whether the graph accepts only one text at a time.
func (in *input) isAlone() bool { return in.fill != nil && in.Dims[0] == 1 }

// memory is the buffer of an input, allocated once and used for every run.
type memory struct {
	long  []int64
	short []int32
	half  []byte // for numbers of 16 bits
}

func (in *input) memory(tokens int, pin *runtime.Pinner) memory {
	m := memory{}
	switch in.Elements {
	case onnxfile.Int64:
		m.long = make([]int64, tokens)
		pin.Pin(&m.long[0])
	case onnxfile.Int32:
		m.short = make([]int32, tokens)
		pin.Pin(&m.short[0])
	case onnxfile.Float16:
		m.half = make([]byte, 1)
		pin.Pin(&m.half[0])
	}
	return m
}

// value makes the tensor of a run, with texts padded to width.
func (in *input) value(m memory, texts [][]int32, width int, kind embed.Kind) (ort.Value, error) {
	if in.fill == nil && in.tasks == nil {
		shape := ort.NewShape(int64(len(texts)), in.Dims[1], 0, in.Dims[3])
		if in.Elements == onnxfile.Float16 {
			return ort.NewCustomDataTensor(shape, m.half, ort.TensorElementDataTypeFloat16)
		}
		return ort.NewTensor(shape, []float32{})
	}
	shape, numbers := ort.NewShape(int64(len(texts)), int64(width)), 0
	put := func(x int64) {
		if m.long != nil {
			m.long[numbers] = x
		} else {
			m.short[numbers] = int32(x)
		}
		numbers++
	}
	if in.tasks != nil {
		put(in.tasks[kind])
		if len(in.Dims) == 0 {
			return in.scalar(m)
		}
		shape = ort.NewShape(1)
	} else {
		for _, tokens := range texts {
			for place, token := range tokens {
				put(in.fill(place, token, true))
			}
			for place := len(tokens); place < width; place++ {
				put(in.fill(place, 0, false))
			}
		}
	}
	if m.long != nil {
		return ort.NewTensor(shape, m.long)
	}
	return ort.NewTensor(shape, m.short)
}

// scalar makes a tensor of one number, without dims.
func (in *input) scalar(m memory) (ort.Value, error) {
	if m.long != nil {
		return ort.NewScalar(m.long[0])
	}
	return ort.NewScalar(m.short[0])
}

// results is the buffer of the graph's output.
type results struct {
	numbers []float32
	half    []byte // the output if it has 16 bits; nil: it has 32
}

func newResults(numbers int, elements int32, pin *runtime.Pinner) results {
	r := results{numbers: make([]float32, numbers)}
	if elements != onnxfile.Float16 {
		pin.Pin(&r.numbers[0])
		return r
	}
	r.half = make([]byte, 2*numbers)
	pin.Pin(&r.half[0])
	return r
}

func (r *results) value(shape ort.Shape) (ort.Value, error) {
	if r.half == nil {
		return ort.NewTensor(shape, r.numbers)
	}
	return ort.NewCustomDataTensor(shape, r.half[:2*shape.FlattenedSize()], ort.TensorElementDataTypeFloat16)
}

// widen converts the first 16-bit numbers to 32 bits.
func (r *results) widen(count int) {
	for i := range count {
		if r.half == nil {
			return
		}
		r.numbers[i] = float16.Frombits(binary.LittleEndian.Uint16(r.half[2*i:])).Float32()
	}
}

// The tasks of documents and queries in jina's models.
const documentTask, queryTask = "retrieval.passage", "retrieval.query"

// tasksOf returns the numbers of the tasks; nil: the list lacks them.
func tasksOf(list []string) map[embed.Kind]int64 {
	tasks := map[embed.Kind]int64{}
	for i, name := range list {
		switch name {
		case documentTask:
			tasks[embed.Document] = int64(i)
		case queryTask:
			tasks[embed.Query] = int64(i)
		}
	}
	if len(tasks) < 2 { // one of the two is missing
		return nil
	}
	return tasks
}

var errNoInput = errors.New("the graph takes no input_ids: it reads no texts")
