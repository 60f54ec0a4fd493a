package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// A graph is what an ONNX file says of itself. It is read without ONNX Runtime, before that library sees the file: an ONNX
// file may name other files to read weights from, anywhere on the disk.
type graph struct {
	file            string // in the folder; parseGraph does not know it
	bytes           int64  // of the file and those with weights; parseGraph does not know it
	inputs, outputs []port
	metadata        map[string]string
	external        []string // files that hold weights, as the file names them
	precision       string   // of the weights: "fp32", "fp16", "int8"
}

// A port is an input or an output of a graph.
type port struct {
	name     string
	elements int32   // ONNX's number for the type of element
	dims     []int64 // -1: any size
}

// ONNX's numbers for types of elements.
const (
	elementFloat32 = 1
	elementUint8   = 2
	elementInt8    = 3
	elementInt64   = 7
	elementFloat16 = 10
	elementBF16    = 16
)

// elementNames are the types that inputs and outputs of encoders may have, whether they are supported or not.
var elementNames = map[int32]string{
	elementFloat32: "float32", elementInt64: "int64", elementFloat16: "float16", elementBF16: "bfloat16", 6: "int32", 9: "bool", 11: "float64",
}

// String tells name, type and shape, as in last_hidden_state (float32[?,?,384]).
func (p port) String() string {
	element, ok := elementNames[p.elements]
	if !ok {
		element = fmt.Sprintf("type %d", p.elements)
	}
	var dims []string
	for _, dim := range p.dims {
		if dim < 0 {
			dims = append(dims, "?")
			continue
		}
		dims = append(dims, strconv.FormatInt(dim, 10))
	}
	return fmt.Sprintf("%.64q (%s[%s])", p.name, element, strings.Join(dims, ","))
}

// list tells of the first few ports.
func list(ports []port) string {
	const few = 8
	var words []string
	for _, p := range ports[:min(few, len(ports))] {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}

// smallTensor is the number of elements from which on a tensor counts as weights rather than as a constant of the graph.
const smallTensor = 1024

// maxDepth bounds graphs within graphs (bodies of loops and branches); no sentence encoder has any.
const maxDepth = 16

// parseGraph reads the bytes of an ONNX file.
func parseGraph(data []byte) (*graph, error) {
	g := &graph{metadata: map[string]string{}}
	p := &graphParser{graph: g, weights: map[int32]int64{}}
	if err := p.model(data); err != nil {
		return nil, fmt.Errorf("parse ONNX: %w", err)
	}
	if len(g.inputs) == 0 || len(g.outputs) == 0 {
		return nil, errors.New("parse ONNX: the file holds no graph with inputs and outputs")
	}
	switch {
	case p.weights[elementInt8]+p.weights[elementUint8] > 0:
		g.precision = precisionInt8
	case p.weights[elementFloat16]+p.weights[elementBF16] > 0:
		g.precision = precisionFP16
	default:
		g.precision = precisionFP32
	}
	return g, nil
}

type graphParser struct {
	graph   *graph
	weights map[int32]int64 // elements by type, of large tensors
}

// A visitor is told each field of a message: bytes for a message or a string, number for a varint.
type visitor func(field protowire.Number, bytes []byte, number uint64) error

// visit reads the fields of a message. It returns an error for anything that is not one.
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
			p.graph.metadata[key] = value
			return err
		case 20, 25: // training_info, functions: both hold nodes, and neither belongs into an encoder
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
			return p.node(bytes, depth)
		case 5: // initializer
			return p.tensor(bytes)
		case 15: // sparse_initializer
			return p.sparse(bytes)
		case 11, 12: // input, output
			if depth > 0 {
				return nil
			}
			one, err := parsePort(bytes)
			if field == 11 {
				p.graph.inputs = append(p.graph.inputs, one)
			} else {
				p.graph.outputs = append(p.graph.outputs, one)
			}
			return err
		}
		return nil
	})
}

// node reads a NodeProto: its attributes may hold tensors and graphs.
func (p *graphParser) node(data []byte, depth int) error {
	return visit(data, func(field protowire.Number, attribute []byte, _ uint64) error {
		if field != 5 {
			return nil
		}
		return visit(attribute, func(field protowire.Number, bytes []byte, _ uint64) error {
			switch field {
			case 5, 10: // t, tensors
				return p.tensor(bytes)
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
			return p.tensor(bytes)
		}
		return nil
	})
}

// tensor reads a TensorProto: its type, its size and where its content is, not the content.
func (p *graphParser) tensor(data []byte) error {
	elements, size, isExternal, location := int32(0), int64(1), false, ""
	multiply := func(dim uint64) {
		if dim > math.MaxInt32 || size > math.MaxInt32 {
			size = math.MaxInt64 / 2
			return
		}
		size *= int64(dim)
	}
	err := visit(data, func(field protowire.Number, bytes []byte, number uint64) error {
		switch field {
		case 1: // dims, one by one or packed
			if bytes == nil {
				multiply(number)
			}
			for len(bytes) > 0 {
				dim, n := protowire.ConsumeVarint(bytes)
				if n < 0 {
					return protowire.ParseError(n)
				}
				multiply(dim)
				bytes = bytes[n:]
			}
		case 2: // data_type
			elements = int32(number)
		case 13: // external_data
			key, value, err := entry(bytes)
			if err != nil {
				return err
			}
			isExternal = true
			if key == "location" {
				location = value
			}
		case 14: // data_location: 1 is EXTERNAL
			isExternal = isExternal || number == 1
		}
		return nil
	})
	if err != nil {
		return err
	}
	if size >= smallTensor {
		p.weights[elements] += size
	}
	if isExternal {
		p.graph.external = append(p.graph.external, location)
	}
	return nil
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
func parsePort(data []byte) (port, error) {
	var one port
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
		one.dims = append(one.dims, size)
		return err
	}
	tensor := func(field protowire.Number, bytes []byte, number uint64) error {
		switch field {
		case 1: // elem_type
			one.elements = int32(number)
		case 2: // shape
			return visit(bytes, dim)
		}
		return nil
	}
	err := visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1: // name
			one.name = string(bytes)
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
