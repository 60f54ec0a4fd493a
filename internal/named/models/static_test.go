package models_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// staticModels are the published layouts of static models.
func staticModels() map[string]map[string]string {
	const tokenizer, module = `{"model": {"type": "WordPiece"}}`, `"type": "sentence_transformers.models.StaticEmbedding"`
	return map[string]map[string]string{
		"model2vec": {
			"config.json": `{"model_type": "model2vec", "hidden_dim": 8}`, "tokenizer.json": tokenizer, weights: "table",
			"modules.json": `[{"path": ".", ` + module + `}, {"path": "1_Normalize"}]`,
		},
		"root": {"modules.json": `[{"path": "", ` + module + `}]`, "tokenizer.json": tokenizer, weights: "table"},
		"nested": {
			"modules.json":                     `[{"path": "0_StaticEmbedding", ` + module + `}]`,
			"0_StaticEmbedding/tokenizer.json": tokenizer, "0_StaticEmbedding/" + weights: "table",
		},
	}
}

// A static model is imported and pulled unchanged: no graph is made from it, and none next to it is downloaded.
func TestStatic_IsTakenAsItIs(t *testing.T) {
	t.Parallel()
	for name, files := range staticModels() {
		wanted := slices.Sorted(maps.Keys(files))
		files["onnx/model.onnx"] = "of no use"
		o := importing(t, files)
		done, err := models.Import(t.Context(), o)
		if err != nil || !slices.Equal(done.Files, wanted) || done.Tokenizer != "WordPiece" ||
			done.SHA256 != sumOf("table") || done.Type == "" {
			t.Errorf("%s: got %+v, %v, want the files %q", name, done, err, wanted)
		}
		if list := models.List([]string{o.Into}); len(list) != 1 || list[0].Name != "new" {
			t.Errorf("%s: found by name: %+v", name, list)
		}
		o.Name, o.Pooling = "other", "cls"
		if _, err := models.Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), "neither a pooling") {
			t.Errorf("%s with a pooling: %v", name, err)
		}
		h := newHub(t)
		h.files = files
		got, err := models.Pull(t.Context(), h.options(t))
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(got)), wanted) {
			t.Errorf("%s: pulled %v, %v, want %q", name, got, err, wanted)
		}
		delete(h.files, wanted[slices.IndexFunc(wanted, func(file string) bool { return filepath.Base(file) == weights })])
		if _, err := models.Pull(t.Context(), h.options(t)); err == nil || !strings.Contains(err.Error(), weights) {
			t.Errorf("%s without a table: %v", name, err)
		}
	}
}
