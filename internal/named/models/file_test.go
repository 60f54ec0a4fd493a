package models_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// If a model has several weights files, only the named one is downloaded.
func TestPull_TheFileThatIsNamed(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.files["onnx/model.onnx"], h.files["onnx/model_quantized.onnx"] = "best", "small"
	o := h.options(t)
	o.File = "onnx/model_quantized.onnx"
	got, err := models.Pull(t.Context(), o)
	if err != nil || got[o.File] == "" || got["onnx/model.onnx"] != "" || got[weights] != "" {
		t.Fatalf("pulled %v, %v", got, err)
	}
	made := models.ImportOptions{
		From: o.Into, Name: "new", Into: filepath.Join(t.TempDir(), "models"), File: o.File, Sums: got,
	}
	done, err := models.Import(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	if graph, err := os.ReadFile(filepath.Join(done.Path, "model.onnx")); err != nil || string(graph) != "small" {
		t.Errorf("the graph is %q, %v", graph, err)
	}
	o.File = "onnx/model_q8.onnx"
	pullFails(t, o, "no such file")
	for _, name := range []string{"../model.onnx", "pytorch_model.bin", "/etc/model.onnx"} {
		o.File, made.File = name, name
		pullFails(t, o, "not a file with weights")
		importFails(t, made, "not a file with weights")
	}
}

// A restricted model is downloaded with a token, which is sent only to the hub itself.
func TestPull_ShowsTheToken(t *testing.T) {
	t.Parallel()
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was shown to another host")
		}
		_, _ = w.Write([]byte("weights"))
	}))
	defer store.Close()
	h := newHub(t)
	h.files[weights] = "weights"
	plain := h.Config.Handler
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer hf_secret":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, weights):
			http.Redirect(w, r, strings.Replace(store.URL, "127.0.0.1", "localhost", 1)+"/blob", http.StatusFound)
		default:
			plain.ServeHTTP(w, r)
		}
	})
	o := h.options(t)
	pullFails(t, o, "set --token-file")
	o.Token = "hf_wrong"
	if _, err := models.Pull(t.Context(), o); err == nil || !strings.Contains(err.Error(), "may not read it") ||
		strings.Contains(err.Error(), o.Token) {
		t.Errorf("with another token: %v", err)
	}
	o.Token = "hf_secret"
	if got, err := models.Pull(t.Context(), o); err != nil || got[weights] == "" {
		t.Errorf("with the token: %v, %v", got, err)
	}
	o.Hub, o.Only = "http://hub.example", true
	if err := models.CheckSource(o); err == nil || !strings.Contains(err.Error(), "a token is not sent there") {
		t.Errorf("without encryption: %v", err)
	}
}

// A model with a very high token limit gets a lower default one: one text of 8,192 tokens takes gigabytes.
func TestImport_BoundsTheLimit(t *testing.T) {
	t.Parallel()
	files := published()
	files["config.json"] = `{"model_type": "other", "max_position_embeddings": 32768, "num_attention_heads": 16}`
	files["onnx/model.onnx"] = "graph"
	for _, test := range []struct {
		stated int
		limits string
		want   string
		told   bool
	}{
		{0, "", `"max_seq_length": 2048`, true},
		{0, `{"max_seq_length": 8192}`, `"max_seq_length": 2048`, true},
		{0, `{"max_seq_length": 512}`, `"max_seq_length": 512`, false},
		{4096, "", `"max_seq_length": 4096`, false},
	} {
		o := importing(t, files)
		if test.limits != "" {
			with := maps.Clone(files)
			with["sentence_roberta_config.json"] = test.limits
			o = importing(t, with)
		}
		told := ""
		o.MaxTokens, o.Say = test.stated, func(what string) { told += what }
		done, err := models.Import(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var found string
		for _, name := range []string{"sentence_bert_config.json", "sentence_roberta_config.json"} {
			if data, err := os.ReadFile(filepath.Join(done.Path, name)); err == nil && found == "" {
				found = string(data)
			}
		}
		if !strings.Contains(found, test.want) || strings.Contains(told, "--max-tokens sets another limit") != test.told {
			t.Errorf("%+v: %q, told %q", test, found, told)
		}
	}
}
