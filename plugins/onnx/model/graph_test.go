package model

import (
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
	return field(11, field(1, "input_ids"), field(2, field(1, varint(1, elementInt64)))) +
		field(12, field(1, "out"), field(2, field(1, varint(1, elementFloat32), shape)))
}

func weights(elements uint64, dims ...uint64) string {
	tensor := varint(2, elements)
	for _, dim := range dims {
		tensor += varint(1, dim)
	}
	return tensor
}

func TestParseGraph(t *testing.T) {
	external := field(13, field(1, "location"), field(2, "w.bin"))
	data := field(7, ports(),
		field(5, weights(elementFloat32, 100, 100)),
		field(5, weights(elementFloat32, 10), external),
		field(15, field(1, external), field(2, weights(elementInt64, 4))),
		field(1, field(5, field(5, external), field(10, external), field(22, field(1, external)))),
		field(1, field(5, field(6, field(1, field(5, field(11, field(5, external))))))),
	) + field(14, field(1, "name"), field(2, "x"))
	g, err := parseGraph([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.external) != 6 || g.external[0] != "w.bin" {
		t.Errorf("external files %v, want w.bin 6 times", g.external)
	}
	if len(g.inputs) != 1 || g.inputs[0].name != "input_ids" || g.inputs[0].elements != elementInt64 {
		t.Errorf("inputs %+v", g.inputs)
	}
	if out := g.outputs[0]; out.name != "out" || len(out.dims) != 2 || out.dims[0] != -1 || out.dims[1] != 384 {
		t.Errorf("outputs %+v", g.outputs)
	}
	if g.metadata["name"] != "x" || g.precision != "fp32" {
		t.Errorf("metadata %v, precision %s", g.metadata, g.precision)
	}
}

func TestParseGraph_Precision(t *testing.T) {
	packed := varint(2, elementFloat16) + field(1, string(protowire.AppendVarint(protowire.AppendVarint(nil, 64), 64)))
	for want, tensors := range map[string]string{
		"fp32": field(5, weights(elementFloat32, 64, 64)) + field(5, weights(elementInt8, 4)), // a small constant is no weight
		"fp16": field(5, packed),
		"int8": field(5, weights(elementFloat32, 64, 64)) + field(5, weights(elementInt8, 64, 64)),
	} {
		g, err := parseGraph([]byte(field(7, ports(), tensors)))
		if err != nil || g.precision != want {
			t.Errorf("got %+v, %v, want precision %s", g, err, want)
		}
	}
}

func TestParseGraph_Refuses(t *testing.T) {
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
		if g, err := parseGraph([]byte(data)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, g)
		}
	}
}

func FuzzParseGraph(f *testing.F) {
	f.Add([]byte(field(7, ports(), field(5, weights(elementInt8, 1<<40, 1<<40)), field(1, field(5, field(6, ports()))))))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := parseGraph(data)
		if err == nil && (len(g.inputs) == 0 || len(g.outputs) == 0) {
			t.Fatal("a graph without input or output")
		}
	})
}
