// Package onnxfile reads the metadata of an ONNX file: its inputs and outputs, the precision of its weights, and the
// files that hold them. It runs nothing and opens no other file.
package onnxfile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// A Graph is the metadata of an ONNX file. It is read before ONNX Runtime opens the file, because an ONNX file may
// refer to weight files anywhere on the disk.
type Graph struct {
	Inputs, Outputs []Port
	Metadata        map[string]string
	External        []string  // names of weight files, with repetitions
	Precision       string    // of the weights: FP32, FP16, Int8
	Products        []Product // matrices it multiplies by, each shape once
}

// Precisions of weights.
const (
	FP32 = "fp32"
	FP16 = "fp16"
	Int8 = "int8"
)

// A Port is an input or an output of a graph.
type Port struct {
	Name     string
	Elements int32   // ONNX's number for the type of element
	Dims     []int64 // -1: any size
}

// ONNX's numbers of the supported element types.
const (
	Float32 = 1
	Int32   = 6
	Int64   = 7
)

// ONNX's numbers of further element types.
const (
	elementUint8   = 2
	elementInt8    = 3
	elementFloat16 = 10
	elementBF16    = 16
)

// elementNames are the types that inputs and outputs of encoders may have, supported or not.
var elementNames = map[int32]string{
	Float32: "float32", Int64: "int64", elementFloat16: "float16", elementBF16: "bfloat16", elementInt8: "int8",
	elementUint8: "uint8", Int32: "int32", 9: "bool", 11: "float64",
}

// ElementName returns the name of a type of elements.
func ElementName(elements int32) string {
	if name, ok := elementNames[elements]; ok {
		return name
	}
	return fmt.Sprintf("type %d", elements)
}

// String returns name, type and shape, as in last_hidden_state (float32[?,?,384]).
func (p Port) String() string {
	element := ElementName(p.Elements)
	var dims []string
	for _, dim := range p.Dims {
		if dim < 0 {
			dims = append(dims, "?")
			continue
		}
		dims = append(dims, strconv.FormatInt(dim, 10))
	}
	return fmt.Sprintf("%.64q (%s[%s])", p.Name, element, strings.Join(dims, ","))
}

// List describes the first few ports.
func List(ports []Port) string {
	const few = 8
	return strings.Join(lists.Map(ports[:min(few, len(ports))], Port.String), ", ")
}

// smallTensor is the number of elements above which a tensor counts as weights, not as a constant.
const smallTensor = 1024

// maxDepth bounds nested graphs (bodies of loops and branches), which sentence encoders do not have.
const maxDepth = 16

// Parse reads the bytes of an ONNX file.
func Parse(data []byte) (*Graph, error) {
	g := &Graph{Metadata: map[string]string{}}
	p := &graphParser{graph: g, weights: map[int32]int64{}, constants: map[string]matrix{}}
	if err := p.model(data); err != nil {
		return nil, fmt.Errorf("parse ONNX: %w", err)
	}
	if len(g.Inputs) == 0 || len(g.Outputs) == 0 {
		return nil, errors.New("parse ONNX: the file holds no graph with inputs and outputs")
	}
	g.Products = products(p.constants, p.operations)
	switch {
	case p.weights[elementInt8]+p.weights[elementUint8] > 0:
		g.Precision = Int8
	case p.weights[elementFloat16]+p.weights[elementBF16] > 0:
		g.Precision = FP16
	default:
		g.Precision = FP32
	}
	return g, nil
}

type graphParser struct {
	graph      *Graph
	weights    map[int32]int64 // elements by type, of large tensors
	constants  map[string]matrix
	operations []operation
}

// A visitor is called with each field of a message: bytes for a message or a string, number for a varint.
type visitor func(field protowire.Number, bytes []byte, number uint64) error

// visit reads the fields of a message. It returns an error for invalid data.
func visit(data []byte, to visitor) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var bytes []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := to(field, bytes, number); err != nil {
			return err
		}
	}
	return nil
}

func (p *graphParser) model(data []byte) error {
	return visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 7: // graph
			return p.inner(bytes, 0)
		case 14: // metadata_props
			key, value, err := entry(bytes)
			p.graph.Metadata[key] = value
			return err
		case 20, 25: // training_info, functions: both contain nodes, and encoders have neither
			return fmt.Errorf("the file holds training information or functions of its own: that is not supported")
		}
		return nil
	})
}

// inner reads a GraphProto.
func (p *graphParser) inner(data []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("graphs are nested more than %d deep", maxDepth)
	}
	return visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1: // node
			if err := p.operation(bytes); err != nil {
				return err
			}
			return p.node(bytes, depth)
		case 5: // initializer
			t, err := p.tensor(bytes)
			if m := t.matrix(); m != nil {
				p.constants[t.name] = *m
			}
			return err
		case 15: // sparse_initializer
			return p.sparse(bytes)
		case 11, 12: // input, output
			if depth > 0 {
				return nil
			}
			one, err := parsePort(bytes)
			if field == 11 {
				p.graph.Inputs = append(p.graph.Inputs, one)
			} else {
				p.graph.Outputs = append(p.graph.Outputs, one)
			}
			return err
		}
		return nil
	})
}

// node reads a NodeProto, whose attributes may contain tensors and graphs.
func (p *graphParser) node(data []byte, depth int) error {
	return visit(data, func(field protowire.Number, attribute []byte, _ uint64) error {
		if field != 5 {
			return nil
		}
		return visit(attribute, func(field protowire.Number, bytes []byte, _ uint64) error {
			switch field {
			case 5, 10: // t, tensors
				_, err := p.tensor(bytes)
				return err
			case 6, 11: // g, graphs
				return p.inner(bytes, depth+1)
			case 22, 23: // sparse_tensor, sparse_tensors
				return p.sparse(bytes)
			}
			return nil
		})
	})
}

// sparse reads a SparseTensorProto.
func (p *graphParser) sparse(data []byte) error {
	return visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		if field == 1 || field == 2 { // values, indices
			_, err := p.tensor(bytes)
			return err
		}
		return nil
	})
}

// A tensor is the metadata of a TensorProto: its type, its size and the place of its content.
type tensor struct {
	name     string
	dims     []uint64
	elements int32
	external bool
	location string // the file of its content
}

func parseTensor(data []byte) (t tensor, err error) {
	err = visit(data, func(field protowire.Number, bytes []byte, number uint64) error {
		switch field {
		case 1: // dims, one by one or packed
			if bytes == nil {
				t.dims = append(t.dims, number)
			}
			for len(bytes) > 0 {
				dim, n := protowire.ConsumeVarint(bytes)
				if n < 0 {
					return protowire.ParseError(n)
				}
				t.dims, bytes = append(t.dims, dim), bytes[n:]
			}
		case 2: // data_type
			t.elements = int32(number)
		case 8:
			t.name = string(bytes)
		case 13: // external_data
			t.external = true
			key, value, err := entry(bytes)
			switch {
			case err != nil || key != "location":
				return err
			case t.location != "":
				return errors.New("a tensor names two files for its content")
			// ONNX Runtime's marker for content in memory: the offset is an address, and it reads whatever is there.
			case strings.Contains(value, "_ORT_MEM_ADDR_"):
				return fmt.Errorf("a tensor's content is said to be in memory (%.64q): refused", value)
			}
			t.location = value
		case 14: // data_location: 1 is EXTERNAL
			t.external = t.external || number == 1
		}
		return nil
	})
	return t, err
}

// size is the number of elements, or a very large number on overflow.
func (t *tensor) size() int64 {
	size := int64(1)
	for _, dim := range t.dims {
		if dim > math.MaxInt32 || size > math.MaxInt32 {
			return math.MaxInt64 / 2
		}
		size *= int64(dim)
	}
	return size
}

// matrix returns the tensor as a matrix; nil unless it has two dims.
func (t *tensor) matrix() *matrix {
	if len(t.dims) != 2 {
		return nil
	}
	return &matrix{rows: int64(t.dims[0]), columns: int64(t.dims[1]), elements: t.elements}
}

// tensor reads a tensor and records its weights and their file.
func (p *graphParser) tensor(data []byte) (tensor, error) {
	t, err := parseTensor(data)
	if err != nil {
		return t, err
	}
	if size := t.size(); size >= smallTensor {
		p.weights[t.elements] += size
	}
	if t.external {
		p.graph.External = append(p.graph.External, t.location)
	}
	return t, nil
}

// entry reads a StringStringEntryProto.
func entry(data []byte) (key, value string, err error) {
	err = visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1:
			key = string(bytes)
		case 2:
			value = string(bytes)
		}
		return nil
	})
	return key, value, err
}

// parsePort reads a ValueInfoProto.
func parsePort(data []byte) (Port, error) {
	var one Port
	dim := func(field protowire.Number, bytes []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		size := int64(-1)
		err := visit(bytes, func(field protowire.Number, _ []byte, number uint64) error {
			if field == 1 { // dim_value; dim_param is a name for any size
				size = int64(number)
			}
			return nil
		})
		one.Dims = append(one.Dims, size)
		return err
	}
	tensor := func(field protowire.Number, bytes []byte, number uint64) error {
		switch field {
		case 1: // elem_type
			one.Elements = int32(number)
		case 2: // shape
			return visit(bytes, dim)
		}
		return nil
	}
	err := visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1: // name
			one.Name = string(bytes)
		case 2: // type
			return visit(bytes, func(field protowire.Number, bytes []byte, _ uint64) error {
				if field != 1 { // tensor_type
					return nil
				}
				return visit(bytes, tensor)
			})
		}
		return nil
	})
	return one, err
}
