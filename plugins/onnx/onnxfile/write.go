package onnxfile

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Number is a numeric field of an ONNX file, which is a protocol buffers message.
func Number(field protowire.Number, value int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), uint64(value))
}

// Message is a field that contains other fields.
func Message(field protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), slices.Concat(parts...))
}

// Text is a field that holds a string.
func Text(field protowire.Number, value string) []byte { return Message(field, []byte(value)) }

// node is a node of a graph, with attributes that are numbers.
func node(kind string, inputs []string, outputs []string, attributes ...[]byte) []byte {
	from := lists.Map(inputs, func(name string) []byte { return Text(1, name) })
	to := lists.Map(outputs, func(name string) []byte { return Text(2, name) })
	return Message(1, append(slices.Concat(attributes, from, to), Text(4, kind))...)
}

// Factors are the names of the input and the output of a product in the graph of WriteProducts.
func Factors(i int) (input, output string) { return fmt.Sprint("x", i), fmt.Sprint("y", i) }

// WriteProducts returns the ONNX file of a graph that multiplies, for each product, an input of any number of float32
// rows by a constant matrix, as encoders do with weights of that type. For 8 bits the rows are quantized to 8 bits,
// too. content returns the matrix of a product, little-endian; each column of an 8-bit one has the scale 1.
func WriteProducts(products []Product, content func(i int) []byte) []byte {
	const opset, irVersion = 17, 8
	var parts [][]byte
	port := func(field protowire.Number, name string, columns int64) []byte {
		shape := Message(2, Message(1, Text(2, "rows")), Message(1, Number(1, int(columns))))
		return Message(field, Text(1, name), Message(2, Message(1, Number(1, Float32), shape)))
	}
	for i, p := range products {
		x, y := Factors(i)
		own := func(name string) string { return fmt.Sprint(name, i) }
		parts = append(parts, port(11, x, p.Rows), port(12, y, p.Columns), Message(5, Number(1, int(p.Rows)),
			Number(1, int(p.Columns)),
			Number(2, int(p.Elements)), Text(8, own("w")), Message(9, content(i))))
		to := func(elements int) []byte { return Message(5, Text(1, "to"), Number(3, elements), Number(20, 2)) }
		switch p.Elements {
		case Int8s, Uint8:
			// The library fuses these to one operation, as in a graph made by the usual tools.
			parts = append(parts,
				node("DynamicQuantizeLinear", []string{x}, []string{own("q"), own("scale"), own("zero")}),
				node("MatMulInteger", []string{own("q"), own("w"), own("zero")}, []string{own("sum")}),
				node("Cast", []string{own("sum")}, []string{own("float")}, to(Float32)),
				node("Mul", []string{own("scale"), own("factors")}, []string{own("scales")}),
				node("Mul", []string{own("float"), own("scales")}, []string{y}),
				Message(5, Number(1, int(p.Columns)), Number(2, Float32), Text(8, own("factors")), Message(9, ones(p.Columns))))
		case Float16:
			parts = append(parts,
				node("Cast", []string{x}, []string{own("half")}, to(Float16)),
				node("MatMul", []string{own("half"), own("w")}, []string{own("product")}),
				node("Cast", []string{own("product")}, []string{y}, to(Float32)))
		default:
			parts = append(parts, node("MatMul", []string{x, own("w")}, []string{y}))
		}
	}
	graph := slices.Concat(append(parts, Text(2, "products"))...)
	return slices.Concat(Number(1, irVersion), Message(7, graph), Message(8, Text(1, ""), Number(2, opset)))
}

// ones returns count 1.0s, little-endian.
func ones(count int64) []byte {
	return slices.Repeat([]byte{0, 0, 0x80, 0x3F}, int(count))
}
