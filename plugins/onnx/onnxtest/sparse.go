package onnxtest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// SparseWords are the vocabulary of the model of SparseFolder, each at its place.
var SparseWords = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "car", "auto", "boat", "ship", "red", "blue"}

// SparseFolder writes the folder of a sparse model that is a table: each word stands for itself with e^2-1, and the words at 4 and 5, and at 6
// and 7, for each other with e-1; so a vector has 2 at the place of each word of its text, and 1 at that of its synonym. All other words
// are the one at 1.
func SparseFolder(t testing.TB) string {
	t.Helper()
	words, size := map[string]int{}, len(SparseWords)
	var table []byte
	for i, word := range SparseWords {
		words[word] = i
		for j := range SparseWords {
			x := -1.0
			switch {
			case i == 1 && j == 1:
				x = math.Expm1(1)
			case i < 4:
			case i == j:
				x = math.Expm1(2)
			case i < 8 && i^1 == j:
				x = math.Expm1(1)
			}
			table = binary.LittleEndian.AppendUint32(table, math.Float32bits(float32(x)))
		}
	}
	weights := join(number(1, size), number(1, size), number(2, 1), text(8, "table"), message(9, table))
	graph := join(
		message(1, text(1, "table"), text(1, "input_ids"), text(2, "logits"), text(4, "Gather")), text(2, "sparse"), message(5, weights),
		port(11, "input_ids", 7, text(2, "batch"), text(2, "seq")), port(12, "logits", 1, text(2, "batch"), text(2, "seq"), number(1, size)))
	vocabulary, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"model.onnx": string(join(number(1, 8), message(7, graph), message(8, text(1, ""), number(2, 17)), message(14, text(1, "name"), text(2, "sparse")))),
		"tokenizer.json": `{"added_tokens": [], "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
			"pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
			"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ` + string(vocabulary) + `}}`,
		"config.json":                 `{"max_position_embeddings": 64}`,
		"modules.json":                `[{"path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"}, {"path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}]`,
		"1_SpladePooling/config.json": `{"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": null}`,
	}
	folder, sums := t.TempDir(), ""
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(content))
		sums += hex.EncodeToString(sum[:]) + "  " + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(sums), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func port(field protowire.Number, name string, elements int, dims ...[]byte) []byte {
	var shape [][]byte
	for _, dim := range dims {
		shape = append(shape, message(1, dim))
	}
	return message(field, text(1, name), message(2, message(1, number(1, elements), message(2, shape...))))
}

func number(field protowire.Number, value int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), uint64(value))
}

func message(field protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), join(parts...))
}

func text(field protowire.Number, value string) []byte { return message(field, []byte(value)) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }
