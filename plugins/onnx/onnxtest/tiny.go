package onnxtest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxfile"
)

// A Tiny is a model that is a table of token vectors; a text's vector is their mean. Its results can be computed by
// hand, and it is cheap to make.
type Tiny struct {
	Words []string    // the vocabulary: [PAD], [UNK], [CLS], [SEP], then any
	Table [][]float32 // a vector for each

	Pooled   bool   // the graph gives sentence_embedding, the largest number of each dim, instead of last_hidden_state
	External string // the file that holds the table, and a number that nothing reads, if it is not the graph's
	Input    string // another name for input_ids
	Output   string // another name for the output
	Type     int    // another type of its numbers, as ONNX counts types, than float32; only said, not done
	Texts    int    // the only number of texts that it takes; 0: any
	Tokens   int    // the only number of tokens that it takes of each; 0: any

	Short bool // input_ids are numbers of 32 bits
	Half  bool // what comes out are numbers of 16 bits
	Task  bool // it takes task_id, and adds it to each number
	Past  bool // it takes past_key_values of a layer with 2 heads of 4 numbers, and does nothing with them

	Times [][]int8 // what the table's vectors are multiplied by, in 8 bits; nil: nothing. Not with Pooled
	// number of tokens in a run above which all vectors are wrong, like those of a faulty library; 0: never
	WrongFrom int
}

// TinyTokens is its token limit, including [CLS] and [SEP].
const TinyTokens = 16

// Letters returns a model with letters and digits as vocabulary, so that most texts have different vectors. Models of
// different seeds differ in every number.
func Letters(dims int, seed uint64) Tiny {
	m := Tiny{Words: []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]"}}
	for letter := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz0123456789", "") {
		m.Words = append(m.Words, letter, "##"+letter)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for range m.Words {
		row := make([]float32, dims)
		for i := range row {
			row[i] = float32(random.IntN(1999)-999) / 128
		}
		row[0] = 1 // no mean is zero
		m.Table = append(m.Table, row)
	}
	return m
}

// Files are the files of its folder without the sums.
func (m Tiny) Files() map[string]string {
	vocab := map[string]int{}
	for id, word := range m.Words {
		vocab[word] = id
	}
	words, err := json.Marshal(vocab)
	if err != nil {
		panic(err) // it is a map of strings
	}
	files := map[string]string{
		"model.onnx": string(m.Graph()),
		"tokenizer.json": `{"added_tokens": [], "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
			"pre_tokenizer": {"type": "BertPreTokenizer"},
			"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
			"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100,
				"vocab": ` + string(words) + `}}`,
		"config.json": fmt.Sprintf(`{"max_position_embeddings": 64, "vocab_size": %d, "hidden_size": %d}`,
			len(m.Table), len(m.Table[0])),
		"sentence_bert_config.json": fmt.Sprintf(`{"max_seq_length": %d}`, TinyTokens),
		"modules.json":              `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]`,
		"1_Pooling/config.json":     `{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}`,
	}
	if m.External != "" {
		files[m.External] = string(m.Weights())
	}
	return files
}

// Mean is the vector of a text with these tokens, [CLS] and [SEP] included.
func (m Tiny) Mean(ids []int32) []float32 {
	mean := make([]float32, len(m.Table[0]))
	for i := range mean {
		for _, id := range ids {
			mean[i] += m.Table[id][i]
		}
		mean[i] /= float32(len(ids))
	}
	return mean
}

// WriteFiles writes files into a folder, which it makes.
func WriteFiles(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// WriteFolder writes files and SHA256SUMS into a folder, which it makes.
func WriteFolder(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	WriteFiles(t, folder, files)
	WriteSums(t, folder, files)
}

// WriteSums writes only SHA256SUMS.
func WriteSums(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	if err := os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(sums.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Graph is its ONNX file: last_hidden_state = Gather(table, input_ids).
func (m Tiny) Graph() []byte {
	input, output := cmp.Or(m.Input, "input_ids"), cmp.Or(m.Output, "last_hidden_state")
	if m.Pooled {
		output = cmp.Or(m.Output, "sentence_embedding")
	}
	element, texts, tokens := cmp.Or(m.Type, 1), dim("batch"), dim("seq")
	if m.Texts != 0 {
		texts = message(1, number(1, m.Texts))
	}
	if m.Tokens != 0 {
		tokens = message(1, number(1, m.Tokens))
	}
	rows, dims := len(m.Table), len(m.Table[0])
	table := join(number(1, rows), number(1, dims), number(2, 1), text(8, "table"))
	if m.External != "" {
		table = join(table, message(13, text(1, "location"), text(2, m.External)), number(14, 1))
	} else {
		table = join(table, text(9, string(m.Weights())))
	}
	if m.Times != nil {
		dims = len(m.Times[0])
	}
	shape := [][]byte{texts, tokens, message(1, number(1, dims))}
	nodes := node("Gather", output, []string{"table", input})
	if m.Times != nil || m.WrongFrom > 0 {
		nodes = m.layer(input, output, dims)
	}
	if m.Pooled {
		shape = slices.Delete(shape, 1, 2)
		nodes = join(
			node("Gather", "tokens", []string{"table", input}),
			node("ReduceMax", output, []string{"tokens"}, message(5, text(1, "axes"), number(8, 1), number(20, 7)),
				attribute("keepdims", 0)),
		)
	}
	weights := message(5, table)
	if m.External != "" { // files of weights hold many tensors
		weights = join(weights, message(5, number(1, 1), number(2, 1), text(8, "unread"),
			message(13, text(1, "location"), text(2, m.External)), message(13, text(1, "length"), text(2, "4")), number(14, 1)))
	}
	elements, more := 7, [][]byte{}
	if m.Short {
		elements = 6
	}
	if m.Task {
		more = append(more, port(11, "task_id", 7))
	}
	if m.Past {
		for _, name := range []string{"past_key_values.0.key", "past_key_values.0.value"} {
			more = append(more, port(11, name, 1, dim("batch"), message(1, number(1, 2)), dim("past"), message(1, number(1, 4))))
		}
	}
	if m.Task || m.Half {
		nodes = m.behind(input, output)
	}
	if m.Half {
		element = 10
	}
	graph := join(nodes, text(2, "tiny"), weights,
		port(11, input, elements, texts, tokens), join(more...), port(12, output, element, shape...))
	return join(number(1, 8), message(7, graph), message(8, text(1, ""), number(2, 17)),
		message(14, text(1, "name"), text(2, "tiny")))
}

// behind makes the nodes after the table: the task number added, and 16 bits.
func (m Tiny) behind(input, output string) []byte {
	nodes, rows, last := node("Gather", "rows", []string{"table", input}), "rows", 1
	if m.Task {
		nodes = join(nodes, node("Cast", "task", []string{"task_id"}, attribute("to", 1)),
			node("Add", "added", []string{rows, "task"}))
		rows = "added"
	}
	if m.Half {
		last = 10
	}
	return join(nodes, node("Cast", output, []string{rows}, attribute("to", last)))
}

// layer makes the further nodes after the table: a product, and a fault.
func (m Tiny) layer(input, output string, dims int) []byte {
	rows := "rows"
	parts := [][]byte{node("Gather", rows, []string{"table", input})}
	if m.Times != nil {
		var data []byte
		for _, row := range m.Times {
			for _, x := range row {
				data = append(data, byte(x))
			}
		}
		parts = append(parts,
			message(5, number(1, len(m.Times)), number(1, dims), number(2, 3), text(8, "times"), text(9, string(data))),
			floats("factors", slices.Repeat([]float32{1. / 64}, dims), dims),
			message(1, text(1, rows), text(2, "quantized"), text(2, "scale"), text(2, "zero"), text(4, "DynamicQuantizeLinear")),
			node("MatMulInteger", "sum", []string{"quantized", "times", "zero"}),
			node("Cast", "float", []string{"sum"}, attribute("to", 1)), node("Mul", "scales", []string{"scale", "factors"}),
			node("Mul", "product", []string{"float", "scales"}))
		rows = "product"
	}
	wrong := make([]float32, dims)
	for i := range wrong {
		wrong[i] = float32(i%3) * 100
	}
	from := cmp.Or(m.WrongFrom, math.MaxInt32)
	limit := binary.LittleEndian.AppendUint64(nil, uint64(from-1))
	return join(append(parts, floats("wrong", wrong, dims),
		message(5, number(2, 7), text(8, "limit"), text(9, string(limit))),
		node("Size", "size", []string{input}), node("Less", "many", []string{"limit", "size"}),
		node("Cast", "factor", []string{"many"}, attribute("to", 1)), node("Mul", "right", []string{"wrong", "factor"}),
		node("Add", output, []string{rows, "right"}))...)
}

// Weights is the table as an ONNX file holds it.
func (m Tiny) Weights() []byte {
	return packed(slices.Concat(m.Table...))
}

func port(field protowire.Number, name string, elements int, dims ...[]byte) []byte {
	return message(field, text(1, name), message(2, message(1, number(1, elements), message(2, dims...))))
}

func dim(name string) []byte { return message(1, text(2, name)) }

// The fields of an ONNX file.
var number, message, text, join = onnxfile.Number, onnxfile.Message, onnxfile.Text, slices.Concat[[]byte]
