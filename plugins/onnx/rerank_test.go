package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
)

// rerankerFolder writes the folder of a tiny cross-encoder.
func rerankerFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	onnxtest.WriteFolder(t, folder, onnxtest.CrossEncoder(8, 7).Files())
	return folder
}

func TestPlugin_Reranker(t *testing.T) {
	h := start(t, map[string]string{modelKey: rerankerFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"})
	about, err := h.Describe(t.Context())
	if err != nil || !about.Reranks || about.Dims != 1 || about.Model != "tiny-reranker" {
		t.Fatalf("described as %+v, %v", about, err)
	}
	scores, err := h.Rerank(t.Context(), "a question", []string{"one", "", strings.Repeat("two ", 200)})
	if err != nil || len(scores) != 3 || scores[0] == scores[2] {
		t.Errorf("%v, %v", scores, err)
	}
	_, err = h.Embed(t.Context(), embed.Document, []string{"one"})
	if class, code := embed.Classify(err); class != embed.Configuration || code != "reranker" {
		t.Errorf("asked for a vector: %v", err)
	}
	h = start(t, map[string]string{modelKey: sparseFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"})
	if _, err := h.Rerank(t.Context(), "q", []string{"one"}); !errors.Is(err, embed.ErrNoReranker) {
		t.Errorf("a model that makes vectors: %v", err)
	}
}

func TestPlugin_RerankerKeepsTheContract(t *testing.T) {
	report := plugins.KeepsContract(t, conformance.Options{
		Path: program,
		Env:  map[string]string{modelKey: rerankerFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"},
	})
	ran := map[string]bool{}
	for _, c := range report.Checks {
		ran[c.ID] = true
	}
	if !ran["rerank"] || ran["order"] {
		t.Errorf("checks of a reranker: %v", ran)
	}
}
