package main

import (
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

func TestPlugin_SparseModel(t *testing.T) {
	env := map[string]string{modelKey: onnxtest.SparseFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"}
	h := start(t, env)
	about, err := h.Describe(t.Context())
	if err != nil || !about.Sparse || about.Dims != len(onnxtest.SparseWords) || about.Model != "tiny" {
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

// The model knows ten words only, so the checks of the texts' vectors are left to those of other models.
func TestPlugin_SparseModelKeepsTheContract(t *testing.T) {
	report, err := conformance.Run(t.Context(), conformance.Options{
		Path: program, Soak: 500 * time.Millisecond, Patience: 100, Only: []string{
			"start", "describe", "health", "unknown",
			"empty", "shutdown", "lifeline",
		},
		Env: map[string]string{modelKey: onnxtest.SparseFolder(t), libraryKey: onnxtest.Library(t), threadsKey: "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Verdict != conformance.Pass {
			t.Errorf("%+v", c)
		}
	}
}
