package model_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// tinyVectors are the weights of a model that is a table: the vector of each of its tokens. What it makes of a text can be
// worked out by hand.
var tinyVectors = [][]float32{
	{0, 0, 0},  // 0 [PAD]
	{1, 0, 0},  // 1 [UNK]
	{1, 1, 0},  // 2 [CLS]
	{0, 1, 1},  // 3 [SEP]
	{4, 0, 0},  // 4 a
	{0, 8, 0},  // 5 b
	{0, 0, 12}, // 6 query
	{0, 0, 24}, // 7 passage
}

// tinyFiles are the files of its folder but the sums.
func tinyFiles() map[string]string {
	return map[string]string{
		"model.onnx": string(tinyGraph{}.encode()),
		"tokenizer.json": `{"added_tokens": [], "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
			"pre_tokenizer": {"type": "BertPreTokenizer"},
			"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
			"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
				"vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5, "query": 6, "passage": 7}}}`,
		"config.json":               `{"max_position_embeddings": 64, "vocab_size": 8, "hidden_size": 3}`,
		"sentence_bert_config.json": `{"max_seq_length": 16}`,
		"modules.json":              `[{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]`,
		"1_Pooling/config.json":     `{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}`,
	}
}

// writeFolder writes files and SHA256SUMS into a new folder.
func writeFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeSums(t, folder, files)
	return folder
}

func writeSums(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	sums := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[name]))
		sums += hex.EncodeToString(sum[:]) + "  " + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openFolder(t testing.TB, folder string) (*model.Model, error) {
	t.Helper()
	m, err := model.Open(t.Context(), model.Options{Folder: folder, Library: onnxtest.Library(t), Threads: 1})
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return m, err
}

// openTiny opens the tiny model with some of its files changed; "" removes one.
func openTiny(t testing.TB, changes map[string]string) (*model.Model, error) {
	t.Helper()
	files := tinyFiles()
	for name, content := range changes {
		files[name] = content
		if content == "" {
			delete(files, name)
		}
	}
	return openFolder(t, writeFolder(t, files))
}

// tinyGraph is an ONNX file: last_hidden_state = Gather(table, input_ids), or with Pooled a vector per text.
type tinyGraph struct {
	pooled   bool   // sentence_embedding, the largest number of each dim, instead of last_hidden_state
	external string // the file that holds the table, if it is not this one
	input    string // another name for input_ids
	output   string // another name for the output
}

func (g tinyGraph) encode() []byte {
	input, output := "input_ids", "last_hidden_state"
	if g.pooled {
		output = "sentence_embedding"
	}
	if g.input != "" {
		input = g.input
	}
	if g.output != "" {
		output = g.output
	}
	rows, dims := len(tinyVectors), len(tinyVectors[0])
	table := join(number(1, rows), number(1, dims), number(2, 1), text(8, "table"))
	if g.external != "" {
		table = join(table, message(13, text(1, "location"), text(2, g.external)), number(14, 1))
	} else {
		table = join(table, text(9, string(tableBytes())))
	}
	shape := [][]byte{dim("batch"), dim("seq"), message(1, number(1, dims))}
	nodes := message(1, text(1, "table"), text(1, input), text(2, output), text(4, "Gather"))
	if g.pooled {
		shape = slices.Delete(shape, 1, 2)
		nodes = join(
			message(1, text(1, "table"), text(1, input), text(2, "tokens"), text(4, "Gather")),
			message(1, text(1, "tokens"), text(2, output), text(4, "ReduceMax"),
				message(5, text(1, "axes"), number(8, 1), number(20, 7)),
				message(5, text(1, "keepdims"), number(3, 0), number(20, 2))),
		)
	}
	graph := join(nodes, text(2, "tiny"), message(5, table),
		port(11, input, 7, dim("batch"), dim("seq")), port(12, output, 1, shape...))
	return join(number(1, 8), message(7, graph), message(8, text(1, ""), number(2, 17)),
		message(14, text(1, "name"), text(2, "tiny")))
}

func tableBytes() []byte {
	var data []byte
	for _, row := range tinyVectors {
		for _, x := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	return data
}

func port(field protowire.Number, name string, elements int, dims ...[]byte) []byte {
	return message(field, text(1, name), message(2, message(1, number(1, elements), message(2, dims...))))
}

func dim(name string) []byte { return message(1, text(2, name)) }

func number(field protowire.Number, value int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), uint64(value))
}

func message(field protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), join(parts...))
}

func text(field protowire.Number, value string) []byte { return message(field, []byte(value)) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// mustLink makes a link, and fails where the file system has none.
func mustLink(t testing.TB, target, link string) {
	t.Helper()
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(fmt.Errorf("make link: %w", err))
	}
}
