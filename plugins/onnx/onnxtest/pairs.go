package onnxtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

// Pairs is a tiny cross-encoder: one layer of attention over the tokens of a query and a text, of which the first
// token's vector gives one number. Score is the same by plain sums.
type Pairs struct {
	Tiny

	Types [][]float32 // added to the vectors of the query's tokens and of the text's; nil: the graph takes no types
	Head  []float32
	Bias  float32

	Roberta bool // pairs are put together as RoBERTa wants them: two separators between, no types
}

// CrossEncoder returns one with random weights.
func CrossEncoder(dims int, seed uint64) Pairs {
	m := Pairs{Tiny: Letters(dims, seed)}
	random := rand.New(rand.NewPCG(seed, 1))
	row := func(scale float64) []float32 {
		values := make([]float32, dims)
		for i := range values {
			values[i] = float32(scale * random.NormFloat64())
		}
		return values
	}
	for i := range m.Table {
		m.Table[i] = row(0.6)
	}
	m.Types = [][]float32{row(0.3), row(0.3)}
	m.Head, m.Bias = row(1), 0.125
	return m
}

// Files are the files of its folder without the sums, as rerankers are published: without files of
// sentence-transformers.
func (m Pairs) Files() map[string]string {
	files := m.Tiny.Files()
	for _, name := range []string{"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} {
		delete(files, name)
	}
	files["model.onnx"] = string(m.Graph())
	files["config.json"] = fmt.Sprintf(`{"architectures": ["BertForSequenceClassification"], "max_position_embeddings": %d,
		"vocab_size": %d, "hidden_size": %d, "id2label": {"0": "LABEL_0"}}`, 2*TinyTokens, len(m.Table), len(m.Table[0]))
	if m.Roberta {
		files["tokenizer.json"] = strings.Replace(files["tokenizer.json"],
			`{"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}`, robertaPairs, 1)
	}
	return files
}

// RealPairs are the files of a cross-encoder of realistic size: the layers of the default model, and a random head.
func RealPairs(t testing.TB) map[string]string {
	t.Helper()
	const dims = 384
	files := ModelFiles(t)
	for _, name := range []string{
		"modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json",
	} {
		delete(files, name)
	}
	files["config.json"] = strings.Replace(files["config.json"], `"BertModel"
  ],`, `"BertForSequenceClassification"], "id2label": {"0": "LABEL_0"},`, 1)
	model, graph := without([]byte(files["model.onnx"]), 7)
	graph, _ = without(graph, 12) // its output
	graph = join(graph, floats("head", CrossEncoder(dims, 1).Head, dims, 1),
		message(5, join(number(2, 7), text(8, "first"), text(9, string(make([]byte, 8))))),
		node("Gather", "begin", []string{"last_hidden_state", "first"}, attribute("axis", 1)),
		node("MatMul", "logits", []string{"begin", "head"}),
		port(12, "logits", 1, dim("batch"), message(1, number(1, 1))))
	files["model.onnx"] = string(join(model, message(7, graph)))
	return files
}

// without removes a field from a message, and returns its content.
func without(data []byte, field protowire.Number) (rest, taken []byte) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		end := n + protowire.ConsumeFieldValue(number, kind, data[n:])
		if number == field {
			taken, _ = protowire.ConsumeBytes(data[n:])
		} else {
			rest = append(rest, data[:end]...)
		}
		data = data[end:]
	}
	return rest, taken
}

// robertaPairs is XLM-RoBERTa's template for pairs.
const robertaPairs = `{"type": "TemplateProcessing",
	"single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
		{"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
	"pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
		{"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
		{"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
	"special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
		"[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}}`

// Tokens are a text's without special ones: words of letters and digits alone are read.
func (m Pairs) Tokens(text string) (ids []int32) {
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		for i, letter := range strings.Split(word, "") {
			if i > 0 {
				letter = "##" + letter
			}
			ids = append(ids, int32(slices.Index(m.Words, letter)))
		}
	}
	return ids
}

// Score is the graph's number for a query and a text of these tokens.
func (m Pairs) Score(query, text []int32) float64 {
	const cls, sep = 2, 3
	ids := slices.Concat([]int32{cls}, query, []int32{sep})
	first := len(ids)
	if m.Roberta {
		ids = append(ids, sep)
	}
	ids = append(append(ids, text...), sep)
	vectors := make([][]float64, len(ids))
	for at, id := range ids {
		for i, x := range m.Table[id] {
			value := float64(x)
			if m.Types != nil && at >= first {
				value += float64(m.Types[1][i])
			} else if m.Types != nil {
				value += float64(m.Types[0][i])
			}
			vectors[at] = append(vectors[at], value)
		}
	}
	weights, sum := make([]float64, len(ids)), 0.0
	for at, v := range vectors {
		for i, x := range v {
			weights[at] += x * vectors[0][i]
		}
		weights[at] = math.Exp(weights[at])
		sum += weights[at]
	}
	score := float64(m.Bias)
	for i, h := range m.Head {
		mixed := 0.0
		for at, v := range vectors {
			mixed += v[i] * weights[at] / sum
		}
		score += float64(h) * math.Tanh(mixed)
	}
	return score
}

// Graph is its ONNX file.
func (m Pairs) Graph() []byte {
	dims := len(m.Head)
	whole := func(name string, value uint64, shape ...int) []byte {
		return message(5, join(sizes(shape), number(2, 7), text(8, name),
			text(9, string(binary.LittleEndian.AppendUint64(nil, value)))))
	}
	inputs := join(port(11, "input_ids", 7, dim("batch"), dim("seq")),
		port(11, "attention_mask", 7, dim("batch"), dim("seq")))
	weights := join(floats("table", slices.Concat(m.Table...), len(m.Table), dims), floats("head", m.Head, dims, 1),
		floats("bias", []float32{m.Bias}, 1), floats("one", []float32{1}, 1), floats("far", []float32{1e9}, 1),
		whole("first", 0), whole("middle", 1, 1))
	nodes := node("Gather", "words", []string{"table", "input_ids"})
	vectors := "words"
	if m.Types != nil {
		inputs = join(inputs, port(11, "token_type_ids", 7, dim("batch"), dim("seq")))
		weights = join(weights, floats("types", slices.Concat(m.Types...), len(m.Types), dims))
		nodes = join(nodes, node("Gather", "sides", []string{"types", "token_type_ids"}),
			node("Add", "vectors", []string{"words", "sides"}))
		vectors = "vectors"
	}
	nodes = join(nodes,
		node("Transpose", "turned", []string{vectors},
			message(5, text(1, "perm"), number(8, 0), number(8, 2), number(8, 1), number(20, 7))),
		node("MatMul", "products", []string{vectors, "turned"}),
		node("Cast", "mask", []string{"attention_mask"}, attribute("to", 1)),
		node("Sub", "without", []string{"mask", "one"}), node("Mul", "below", []string{"without", "far"}),
		node("Unsqueeze", "hidden", []string{"below", "middle"}), node("Add", "masked", []string{"products", "hidden"}),
		node("Softmax", "attention", []string{"masked"}, attribute("axis", 2)),
		node("MatMul", "mixed", []string{"attention", vectors}),
		node("Gather", "begin", []string{"mixed", "first"}, attribute("axis", 1)),
		node("Tanh", "pooled", []string{"begin"}), node("MatMul", "number", []string{"pooled", "head"}),
		node("Add", "logits", []string{"number", "bias"}))
	graph := join(nodes, text(2, "tiny"), weights, inputs,
		port(12, "logits", 1, dim("batch"), message(1, number(1, 1))))
	return join(number(1, 8), message(7, graph), message(8, text(1, ""), number(2, 17)),
		message(14, text(1, "name"), text(2, "tiny-reranker")))
}

// sizes are the dims of a tensor.
func sizes(shape []int) []byte {
	return join(lists.Map(shape, func(n int) []byte { return number(1, n) })...)
}

// floats is a constant of a graph.
func floats(name string, values []float32, shape ...int) []byte {
	return message(5, sizes(shape), number(2, 1), text(8, name), message(9, packed(values)))
}

func packed(values []float32) (data []byte) {
	for _, x := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// node is a node of a graph.
func node(kind, out string, in []string, attributes ...[]byte) []byte {
	parts := lists.Map(in, func(name string) []byte { return text(1, name) })
	return message(1, join(append(parts, text(2, out), text(4, kind), join(attributes...))...))
}

// attribute is a number of a node.
func attribute(name string, value int) []byte {
	return message(5, text(1, name), number(3, value), number(20, 2))
}
