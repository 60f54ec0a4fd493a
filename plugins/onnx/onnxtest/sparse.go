package onnxtest

import (
	"math"
	"testing"
)

// SparseWords are the vocabulary of the model of SparseFolder, each at its place.
var SparseWords = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "car", "auto", "boat", "ship", "red", "blue"}

// SparseFolder writes the folder of a sparse model: each word stands for itself with e^2-1, and the words at 4 and 5,
// and at 6 and 7, for each other with e-1; so a vector has 2 at the place of each word of its text, and 1 at that of
// its synonym. All other words are the one at 1.
func SparseFolder(t testing.TB) string {
	t.Helper()
	m := Tiny{Words: SparseWords, Output: "logits"}
	for i := range SparseWords {
		row := make([]float32, len(SparseWords))
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
	WriteFolder(t, folder, files)
	return folder
}
