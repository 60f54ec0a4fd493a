package onnxfile

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Product is the shape of a matrix that a graph multiplies by.
type Product struct {
	Rows, Columns int64
	Elements      int32 // ONNX's number for the type of its elements
}

// The types of elements that a Product may have, besides Float32.
const (
	Uint8   = elementUint8
	Int8s   = elementInt8
	Float16 = elementFloat16
)

// matrixInput is the input of an operator that is the matrix it multiplies by.
var matrixInput = map[string]int{
	"MatMul": 1, "Gemm": 1, "FusedMatMul": 1, "MatMulInteger": 1, "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1,
	"QLinearMatMul": 3, "QGemm": 3, "Attention": 1, "QAttention": 1,
}

// A matrix is a constant of a graph with two dims.
type matrix struct {
	rows, columns int64
	elements      int32
	unpacked      bool // from 8 bits, by an operator of the graph
}

// operation is the relevant part of a node.
type operation struct {
	kind            string
	inputs, outputs []string
	transposed      bool  // the matrix
	heads           int64 // of attention; each head is a separate product
}

// products returns the shapes of what operations multiply constants by, each once. Nodes of a graph are in execution
// order.
func products(constants map[string]matrix, operations []operation) []Product {
	var found []Product
	add := func(p Product) {
		if p.Elements == elementBF16 { // no current CPU multiplies them directly
			p.Elements = Float32
		}
		supported := slices.Contains([]int32{Float32, Float16, Int8s, Uint8}, p.Elements)
		if supported && p.Rows > 0 && p.Columns > 0 && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	for _, o := range operations {
		if len(o.inputs) == 0 {
			continue
		}
		switch o.kind {
		case "Cast", "Identity", "Transpose", "DequantizeLinear":
			m, ok := constants[o.inputs[0]]
			if !ok || len(o.outputs) == 0 {
				continue
			}
			if o.kind == "Transpose" {
				m.rows, m.columns = m.columns, m.rows
			}
			m.unpacked = m.unpacked || o.kind == "DequantizeLinear"
			constants[o.outputs[0]] = m
			continue
		}
		at, ok := matrixInput[o.kind]
		if !ok || at >= len(o.inputs) {
			continue
		}
		m, ok := constants[o.inputs[at]]
		if !ok {
			continue
		}
		if o.transposed {
			m.rows, m.columns = m.columns, m.rows
		}
		if o.heads > 0 {
			m.columns /= 3 * o.heads // queries, keys and values
		}
		add(Product{m.rows, m.columns, m.elements})
		if m.unpacked { // the library unpacks either the matrix or the result
			add(Product{m.rows, m.columns, Float32})
		}
	}
	return found
}

// operation records a node's kind, the names of its inputs and outputs, and two of its attributes.
func (p *graphParser) operation(data []byte) error {
	var o operation
	var constant *matrix
	err := visit(data, func(field protowire.Number, bytes []byte, _ uint64) error {
		switch field {
		case 1:
			o.inputs = append(o.inputs, string(bytes))
		case 2:
			o.outputs = append(o.outputs, string(bytes))
		case 4:
			o.kind = string(bytes)
		case 5:
			var name string
			var value uint64
			err := visit(bytes, func(field protowire.Number, bytes []byte, number uint64) error {
				switch field {
				case 1:
					name = string(bytes)
				case 3:
					value = number
				case 5:
					t, err := parseTensor(bytes)
					constant = t.matrix()
					return err
				}
				return nil
			})
			o.transposed = o.transposed || name == "transB" && value != 0
			if name == "num_heads" && value < 1<<16 {
				o.heads = int64(value)
			}
			return err
		}
		return nil
	})
	if constant != nil && o.kind == "Constant" && len(o.outputs) > 0 {
		p.constants[o.outputs[0]] = *constant
	}
	p.operations = append(p.operations, o)
	return err
}
