package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// The variables that tests set.
const (
	modelKey   = "EMBEDSIDECAR_PLUGIN_MODEL"
	libraryKey = "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME"
	threadsKey = "EMBEDSIDECAR_PLUGIN_THREADS"
	poolingKey = "EMBEDSIDECAR_PLUGIN_POOLING"
)

// program is this plugin, built once for all tests.
var program string

func TestMain(m *testing.M) {
	os.Exit(programs.Build(".", "embedsidecar-onnx", func(path string) int { program = path; return m.Run() }))
}

// start runs the plugin with package host.
func start(t *testing.T, env map[string]string) *host.Host {
	t.Helper()
	return plugins.Start(t, host.Options{Path: program, Env: env})
}

func TestPlugin_DescribesAndEmbeds(t *testing.T) {
	h := start(t, map[string]string{modelKey: onnxtest.Model(t), libraryKey: onnxtest.Library(t), threadsKey: "1"})
	about, err := h.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if about.Plugin != "onnx" || about.Model != onnxtest.ModelName || about.Dims != 384 || about.MaxTokens != 256 ||
		about.MaxBatch != maxBatch {
		t.Errorf("described as %+v", about)
	}
	type line struct {
		Text      string    `json:"text"`
		Embedding []float32 `json:"embedding"`
	}
	lines := onnxtest.Lines[line](t, "model/testdata/embeddings.jsonl.gz")
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.Text)
	}
	results, err := h.Embed(t.Context(), embed.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Empty {
			continue
		}
		dot := 0.0 // of two vectors of length 1: their cosine
		for k, x := range r.Vector {
			dot += float64(x) * float64(lines[i].Embedding[k])
		}
		if dot < 0.9999 {
			t.Errorf("text %d: cosine to the reference %g, want 0.9999", i, dot)
		}
	}
}

// An error that a user must fix is a configuration error that says what to do.
func TestPlugin_ConfigurationErrors(t *testing.T) {
	folder, library := onnxtest.Model(t), onnxtest.Library(t)
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"no model", map[string]string{libraryKey: library}, modelKey + " is not set"},
		{"no folder", map[string]string{modelKey: "/nonexistent", libraryKey: library}, "/nonexistent"},
		{"no library", map[string]string{modelKey: folder, libraryKey: t.TempDir()}, "find ONNX Runtime: no libonnxruntime"},
		{
			"wrong library",
			map[string]string{modelKey: folder, libraryKey: filepath.Join(folder, "vocab.txt")},
			"load ONNX Runtime",
		},
		{"threads", map[string]string{modelKey: folder, libraryKey: library, threadsKey: "many"}, threadsKey + `="many"`},
		{
			"too many threads",
			map[string]string{modelKey: folder, libraryKey: library, threadsKey: "257"},
			threadsKey + `="257": want a number from 0 to 256`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := start(t, test.env).Describe(t.Context())
			class, _ := embed.Classify(err)
			if err == nil || class != embed.Configuration || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %s error %v, want a configuration error with %q", class, err, test.want)
			}
		})
	}
}

func TestPlugin_RefusesToRunByHand(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "plugin") {
		t.Errorf("got %v and %q, want status 1 and a word about plugins", err, out)
	}
}
