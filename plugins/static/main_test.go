package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/safetensors"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// program is this plugin, built once for all tests.
var program string

func TestMain(m *testing.M) {
	os.Exit(programs.Build(".", "embedsidecar-static", func(path string) int {
		program = path
		return m.Run()
	}, "CGO_ENABLED=0"))
}

func start(t *testing.T, env map[string]string) *host.Host {
	t.Helper()
	return plugins.Start(t, host.Options{Path: program, Env: env})
}

func TestPlugin_DescribesAndEmbeds(t *testing.T) {
	t.Parallel()
	h := start(t, map[string]string{variables + "MODEL": layoutFolder(t, "model2vec_f16", nil)})
	about, err := h.Describe(t.Context())
	if err != nil || about.Plugin != "static" || about.Model != "model2vec_f16" || about.Dims != 8 || about.MaxTokens != 4 ||
		!about.Deterministic {
		t.Errorf("described as %+v, %v", about, err)
	}
	stated := map[string]embed.Setting{}
	for _, s := range about.Settings {
		stated[s.Name] = s
	}
	if s := stated["max_tokens"]; s.Value != "4" || s.Source != "config.json" || stated["normalize"].Value != "false" {
		t.Errorf("settings %+v", about.Settings)
	}
	texts, vectors := reference(t)
	results, err := h.Embed(t.Context(), embed.Document, texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range vectors["model2vec_f16"] {
		if len(results[i].Vector) != len(want) || results[i].Empty != (want == nil) {
			t.Errorf("%q: %+v, want %v", texts[i], results[i], want)
		}
	}
}

func TestPlugin_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	made := layoutFolder(t, "model2vec", nil)
	for _, test := range []struct{ key, value, want string }{
		{"MODEL", "", "EMBEDSIDECAR_PLUGIN_MODEL is not set"},
		{"POOLING", "cls", "EMBEDSIDECAR_PLUGIN_POOLING is set: a static model has no such setting"},
		{"DIMS", "many", "want a number"},
		{"NORMALIZE", "perhaps", "want true or false"},
	} {
		_, err := start(t, map[string]string{variables + "MODEL": made, variables + test.key: test.value}).Describe(t.Context())
		whole, ok := errors.AsType[*embed.Error](err)
		if err == nil || !strings.Contains(err.Error(), test.want) || ok && whole.Class != embed.Configuration {
			t.Errorf("%s=%s: got %v, want %q", test.key, test.value, err, test.want)
		}
	}
}

// whole makes a model of usual size: the default model's tokens, and a table of random numbers.
func whole(t testing.TB, dims int) string {
	t.Helper()
	tokens, err := os.ReadFile(filepath.Join(onnxtest.Model(t), tokenizerFile))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct {
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(tokens, &file); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(27, 27))
	table := &safetensors.Tensor{Name: "embeddings", Shape: []int{len(file.Model.Vocab), dims}}
	for range len(file.Model.Vocab) * dims {
		table.Floats = append(table.Floats, float32(random.NormFloat64()))
	}
	return layoutFolder(t, "model2vec", map[string]string{tableFile: tensors(t, table), tokenizerFile: string(tokens)})
}

func TestPlugin_KeepsTheContract(t *testing.T) {
	t.Parallel()
	plugins.KeepsContract(t, conformance.Options{
		Path: program, Env: map[string]string{variables + "MODEL": whole(t, 32)},
	})
}

// A model of usual size uses little memory besides its table.
func TestPlugin_FitsIntoMemory(t *testing.T) {
	const most = 100 << 20
	h := start(t, map[string]string{variables + "MODEL": whole(t, 256)})
	texts := make([]string, maxBatch)
	for i := range texts {
		texts[i] = strings.Repeat("several words of an ordinary text ", 20)
	}
	for range 20 {
		if _, err := h.Embed(t.Context(), embed.Document, texts); err != nil {
			t.Fatal(err)
		}
	}
	memory := h.Processes()[0].Memory
	t.Logf("%d MB of memory", memory>>20)
	if memory > most {
		t.Errorf("%d bytes, and the table has 31 million", memory)
	}
}
