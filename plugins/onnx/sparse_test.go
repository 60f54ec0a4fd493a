package main

import (
	"math"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
)

func TestPlugin_SparseModel(t *testing.T) {
	env := map[string]string{modelKey: sparseFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"}
	h := start(t, env)
	about, err := h.Describe(t.Context())
	if err != nil || !about.Sparse || about.Dims != len(sparseWords) || about.Model != "tiny" {
		t.Fatalf("described as %+v, %v", about, err)
	}
	results, err := h.Embed(t.Context(), embed.Document, []string{"red car", "", strings.Repeat("ship ", 200)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float32{{4, 2, 5, 1, 8, 2}, nil, {6, 1, 7, 2}} {
		if got := results[i].Vector; len(got) != len(want) || len(want) > 0 && embed.SparseLikeness(got, want) < 0.999999 {
			t.Errorf("text %d: %+v, want %v", i, results[i], want)
		}
	}
	if !results[1].Empty || !results[2].Truncated {
		t.Errorf("%+v", results[1:])
	}
	env[poolingKey] = "mean"
	if _, err := start(t, env).Describe(t.Context()); err == nil || !strings.Contains(err.Error(), "pooling splade") {
		t.Errorf("with another pooling: %v", err)
	}
}

// The model has only ten words, so the checks of vectors are left to tests of other models.
func TestPlugin_SparseModelKeepsTheContract(t *testing.T) {
	plugins.KeepsContract(t, conformance.Options{
		Path: program, Only: []string{"start", "describe", "health", "unknown", "empty", "shutdown", "lifeline"},
		Env: map[string]string{modelKey: sparseFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"},
	})
}

// sparseWords are the vocabulary of sparseFolder's model, by index.
var sparseWords = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "car", "auto", "boat", "ship", "red", "blue"}

// sparseFolder writes the folder of a sparse model. Each word has the output e^2-1 at its own index, and the words at 4
// and 5, and at 6 and 7, are synonyms with e-1. So a vector has 2 at the index of each word of its text, and 1 at that
// of its synonym. All other words are the one at 1.
func sparseFolder(t *testing.T) string {
	t.Helper()
	m := onnxtest.Tiny{Words: sparseWords, Output: "logits"}
	for i := range sparseWords {
		row := make([]float32, len(sparseWords))
		for j := range row {
			switch {
			case i == j && i >= 4:
				row[j] = float32(math.Expm1(2))
			case i == j && i == 1, i >= 4 && i < 8 && i^1 == j:
				row[j] = float32(math.Expm1(1))
			default:
				row[j] = -1
			}
		}
		m.Table = append(m.Table, row)
	}
	files := m.Files()
	delete(files, "1_Pooling/config.json")
	files["modules.json"] = `[{"path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"}, {"path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}]`
	files["1_SpladePooling/config.json"] = `{"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": null}`
	folder := t.TempDir()
	onnxtest.WriteFolder(t, folder, files)
	return folder
}
