package onnxfile

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func field(number protowire.Number, parts ...string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), strings.Join(parts, "")))
}

func varint(number protowire.Number, value uint64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value))
}

// ports are what a graph must have.
func ports() string {
	shape := field(2, field(1, field(2, "batch")), field(1, varint(1, 384)))
	return field(11, field(1, "input_ids"), field(2, field(1, varint(1, Int64)))) +
		field(12, field(1, "out"), field(2, field(1, varint(1, Float32), shape)))
}

func weights(elements uint64, dims ...uint64) string {
	tensor := varint(2, elements)
	for _, dim := range dims {
		tensor += varint(1, dim)
	}
	return tensor
}

func TestParse(t *testing.T) {
	external := field(13, field(1, "location"), field(2, "w.bin"))
	data := field(7, ports(),
		field(5, weights(Float32, 100, 100)),
		field(5, weights(Float32, 10), external),
		field(15, field(1, external), field(2, weights(Int64, 4))),
		field(1, field(5, field(5, external), field(10, external), field(22, field(1, external)))),
		field(1, field(5, field(6, field(1, field(5, field(11, field(5, external))))))),
	) + field(14, field(1, "name"), field(2, "x"))
	g, err := Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.External) != 6 || g.External[0] != "w.bin" {
		t.Errorf("external files %v, want w.bin 6 times", g.External)
	}
	if len(g.Inputs) != 1 || g.Inputs[0].Name != "input_ids" || g.Inputs[0].Elements != Int64 {
		t.Errorf("inputs %+v", g.Inputs)
	}
	if out := g.Outputs[0]; out.Name != "out" || len(out.Dims) != 2 || out.Dims[0] != -1 || out.Dims[1] != 384 {
		t.Errorf("outputs %+v", g.Outputs)
	}
	if g.Metadata["name"] != "x" || g.Precision != "fp32" {
		t.Errorf("metadata %v, precision %s", g.Metadata, g.Precision)
	}
}

func TestParse_Precision(t *testing.T) {
	packed := varint(2, elementFloat16) + field(1, string(protowire.AppendVarint(protowire.AppendVarint(nil, 64), 64)))
	for want, tensors := range map[string]string{
		"fp32": field(5, weights(Float32, 64, 64)) + field(5, weights(elementInt8, 4)), // a small constant is no weight
		"fp16": field(5, packed),
		"int8": field(5, weights(Float32, 64, 64)) + field(5, weights(elementInt8, 64, 64)),
	} {
		g, err := Parse([]byte(field(7, ports(), tensors)))
		if err != nil || g.Precision != want {
			t.Errorf("got %+v, %v, want precision %s", g, err, want)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	deep := ""
	for range maxDepth + 2 {
		deep = field(1, field(5, field(6, deep)))
	}
	for name, data := range map[string]string{
		"empty":     "",
		"no graph":  varint(1, 8),
		"no output": field(7, field(11, field(1, "input_ids"))),
		"functions": field(7, ports()) + field(25, "f"),
		"training":  field(7, ports()) + field(20, "t"),
		"cut":       field(7, ports())[:20],
		"text":      "<!DOCTYPE html>",
		"too deep":  field(7, ports(), deep),
		"bad dims":  field(7, ports(), field(5, field(1, "\xff"))),
	} {
		if g, err := Parse([]byte(data)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, g)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(field(7, ports(), field(5, weights(elementInt8, 1<<40, 1<<40)), field(1, field(5, field(6, ports()))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Parse(data)
		if err == nil && (len(g.Inputs) == 0 || len(g.Outputs) == 0) {
			t.Fatal("a graph without input or output")
		}
	})
}

func TestParse_Products(t *testing.T) {
	named := func(name string, elements uint64, dims ...uint64) string {
		return field(5, field(8, name), weights(elements, dims...))
	}
	op := func(kind, inputs, output string, attributes ...string) string {
		parts := field(4, kind) + field(2, output)
		for name := range strings.FieldsSeq(inputs) {
			parts += field(1, name)
		}
		for _, a := range attributes {
			parts += field(5, a)
		}
		return field(1, parts)
	}
	number := func(name string, value uint64) string { return field(1, name) + varint(3, value) }
	packed := field(5, field(8, "packed"), field(1, "\x03\x05"), varint(2, Float32))
	data := field(7, ports(),
		op("Gather", "words input_ids", "x"), // no product
		op("MatMul", "x a", "y"), op("MatMul", "y a", "z"), op("MatMul", "x y", "scores"),
		op("Gemm", "x b bias", "g", number("transB", 1)),
		op("Transpose", "c", "c.t"), op("Cast", "c.t", "c.f"), op("MatMul", "x c.f", "u"),
		op("QAttention", "q qkv bias s", "att", number("num_heads", 4)),
		op("DequantizeLinear", "d s z", "d.f"), op("MatMul", "x d.f", "v"),
		op("Constant", "", "e", field(1, "value")+field(5, weights(elementBF16, 6, 8))), op("MatMul", "x e", "w"),
		op("MatMul", "x packed", "p"), op("MatMul", "x", "bad"), op("Cast", "", "bad2"),
		named("words", Float32, 30_000, 8), named("a", Float32, 8, 9), named("b", Float16, 10, 8), named("c", Float32, 11, 8),
		named("qkv", elementInt8, 8, 24), named("d", elementUint8, 8, 7), named("bias", Float32, 9), packed)
	g, err := Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	want := []Product{
		{8, 9, Float32},
		{8, 10, Float16},
		{8, 11, Float32},
		{8, 2, Int8s},
		{8, 7, Uint8},
		{8, 7, Float32},
		{6, 8, Float32},
		{3, 5, Float32},
	}
	if !slices.Equal(g.Products, want) {
		t.Errorf("products %v, want %v", g.Products, want)
	}
}

// Memory addresses of ONNX Runtime, and content in two places, are refused anywhere in the file.
func TestParse_RefusesContentThatIsNoFile(t *testing.T) {
	location := func(name string) string { return field(13, field(1, "location"), field(2, name)) }
	for _, tensor := range []string{
		location("*/_ORT_MEM_ADDR_/*"), location("x/../*/_ORT_MEM_ADDR_/*"), location("w.bin") + location("other.bin"),
	} {
		for _, graph := range []string{
			field(5, tensor), field(15, field(1, tensor)), field(1, field(5, field(5, tensor))),
			field(1, field(5, field(6, field(5, tensor)))),
		} {
			if g, err := Parse([]byte(field(7, ports(), graph))); err == nil {
				t.Errorf("%q is taken: %+v", tensor, g)
			}
		}
	}
}
