package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// A model comes from a hub that breaks off, is imported, tried and in its place; a hub that serves something else
// brings nothing.
func TestModelsPull(t *testing.T) {
	graph := strings.Repeat("graph", 20_000)
	files := map[string]string{"config.json": `{"model_type": "other"}`, "tokenizer.json": `{}`, "onnx/model.onnx": graph}
	var breaks atomic.Int32
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[strings.TrimPrefix(r.URL.Path, "/author/model/resolve/v1/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if content == graph && breaks.Add(1) == 1 {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(content[:30_000]))
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte(content))
	}))
	defer hub.Close()

	fake, err := plugins()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	plugin := filepath.Join(work, "plugins", "embedsidecar-onnx")
	code, err := os.ReadFile(filepath.Join(fake, "embedsidecar-fake"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{plugin: code, filepath.Join(work, "library.so"): nil} {
		if err := programs.Write(path, content); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(work, "home")
	pull := func(args ...string) (int, string, string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		p := &program{commands: commands(), stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
		line := slices.Concat([]string{
			"embedsidecar", "models", "pull", "author/model", "--revision", "v1", "--hub", hub.URL, "--model-dir", home,
			"--plugin-dir", filepath.Dir(plugin), "--onnxruntime", filepath.Join(work, "library.so"),
		}, args)
		return p.run(t.Context(), line), stdout.String(), stderr.String()
	}
	installed := func() []string {
		entries, _ := os.ReadDir(home) // may not be there yet
		var names []string
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), ".") {
				names = append(names, entry.Name())
			}
		}
		return names
	}

	if status, _, stderr := pull("--sha256", strings.Repeat("0", 64)); status != exitFailed || !strings.Contains(stderr,
		"its pin says 000") || installed() != nil {
		t.Errorf("another file than pinned: status %d, %s, installed %v", status, stderr, installed())
	}
	breaks.Store(0)
	sum := sha256.Sum256([]byte(graph))
	status, stdout, stderr := pull("--sha256", hex.EncodeToString(sum[:]))
	if status != 0 || !strings.Contains(stdout, "imported") || !strings.Contains(stderr, "download was cut off") ||
		!slices.Equal(installed(), []string{"model"}) {
		t.Fatalf("status %d, %s%s, installed %v", status, stdout, stderr, installed())
	}
	if got, err := os.ReadFile(filepath.Join(home, "model", "model.onnx")); err != nil || string(got) != graph {
		t.Errorf("the graph has %d bytes, want %d (%v)", len(got), len(graph), err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 2 { // with .pulled
		t.Errorf("left behind: %v (%v)", entries, err)
	}
	if status, stdout, _ := pull("--unpinned"); status != 0 || !strings.Contains(stdout, "was there already") {
		t.Errorf("again: status %d, %s", status, stdout)
	}

	// What the first pull found is what each later one wants, of every file.
	files["tokenizer.json"], files["vocab.txt"] = `{"other": 1}`, "new"
	if err := os.RemoveAll(filepath.Join(home, "model")); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(home, ".pulled", "author--model@v1")
	for _, args := range [][]string{nil, {"--unpinned"}, {"--sha256", hex.EncodeToString(sum[:])}} {
		status, _, stderr := pull(args...)
		if status != exitFailed || !strings.Contains(stderr, "tokenizer.json: it has sha256") || !strings.Contains(stderr,
			record) || installed() != nil {
			t.Errorf("%q: another tokenizer than at first: status %d, %s, installed %v", args, status, stderr, installed())
		}
	}
	files["tokenizer.json"] = "{}"
	if status, _, stderr := pull(); status != 0 {
		t.Errorf("the same files without a pin: status %d, %s", status, stderr)
	}
	if _, err := os.Stat(filepath.Join(home, "model", "vocab.txt")); err == nil {
		t.Error("a file that was not there at first was fetched")
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := pull(); status != exitUsage || !strings.Contains(stderr, "--unpinned") {
		t.Errorf("without pin and record: status %d, %s", status, stderr)
	}
}
