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

// hub serves the files of one model, and aborts the first download of its graph.
type hub struct {
	graph  string
	files  map[string]string
	breaks atomic.Int32
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := h.files[strings.TrimPrefix(r.URL.Path, "/author/model/resolve/v1/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if content == h.graph && h.breaks.Add(1) == 1 {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write([]byte(content[:30_000]))
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(content))
}

// puller is an installation that pulls that model.
type puller struct {
	t       *testing.T
	url     string
	home    string // of models
	plugin  string
	library string
}

func newPuller(t *testing.T, url string) *puller {
	t.Helper()
	fake, err := plugins()
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	p := &puller{
		t: t, url: url, home: filepath.Join(work, "home"), library: filepath.Join(work, "library.so"),
		plugin: filepath.Join(work, "plugins", "embedsidecar-onnx"),
	}
	code, err := os.ReadFile(filepath.Join(fake, "embedsidecar-fake"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(p.plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{p.plugin: code, p.library: nil} {
		if err := programs.Write(path, content); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *puller) pull(args ...string) (status int, stdout, stderr string) {
	p.t.Helper()
	var out, errOut bytes.Buffer
	run := &program{commands: commands(), stdin: strings.NewReader(""), stdout: &out, stderr: &errOut}
	line := slices.Concat([]string{
		"embedsidecar", "models", "pull", "author/model", "--revision", "v1", "--hub", p.url, "--model-dir", p.home,
		"--plugin-dir", filepath.Dir(p.plugin), "--set", "onnxruntime=" + p.library,
	}, args)
	return run.run(p.t.Context(), line), out.String(), errOut.String()
}

func (p *puller) installed() (names []string) {
	entries, _ := os.ReadDir(p.home) // may not be there yet
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names
}

// A model is pulled from a hub that aborts a download, and is imported and tried. A hub that serves other files leaves
// nothing.
func TestModelsPull(t *testing.T) {
	graph := strings.Repeat("graph", 20_000)
	h := &hub{graph: graph, files: map[string]string{
		"config.json": `{"model_type": "other"}`, "tokenizer.json": `{}`, "onnx/model.onnx": graph,
	}}
	server := httptest.NewServer(h)
	defer server.Close()
	p := newPuller(t, server.URL)

	if status, _, stderr := p.pull("--sha256", strings.Repeat("0", 64)); status != exitFailed ||
		!strings.Contains(stderr, "its pin says 000") || p.installed() != nil {
		t.Errorf("another file than pinned: status %d, %s, installed %v", status, stderr, p.installed())
	}
	h.breaks.Store(0)
	sum := sha256.Sum256([]byte(graph))
	pin := hex.EncodeToString(sum[:])
	status, stdout, stderr := p.pull("--sha256", pin)
	if status != 0 || !strings.Contains(stdout, "imported") || !strings.Contains(stderr, "download was cut off") ||
		!slices.Equal(p.installed(), []string{"model"}) {
		t.Fatalf("status %d, %s%s, installed %v", status, stdout, stderr, p.installed())
	}
	if got, err := os.ReadFile(filepath.Join(p.home, "model", "model.onnx")); err != nil || string(got) != graph {
		t.Errorf("the graph has %d bytes, want %d (%v)", len(got), len(graph), err)
	}
	if entries, err := os.ReadDir(p.home); err != nil || len(entries) != 2 { // with .pulled
		t.Errorf("left behind: %v (%v)", entries, err)
	}
	if status, stdout, _ := p.pull("--unpinned"); status != 0 || !strings.Contains(stdout, "was there already") {
		t.Errorf("again: status %d, %s", status, stdout)
	}
	p.wantsTheSame(h, pin)
}

// wantsTheSame: every later pull must get the files of the first one.
func (p *puller) wantsTheSame(h *hub, pin string) {
	p.t.Helper()
	h.files["tokenizer.json"], h.files["vocab.txt"] = `{"other": 1}`, "new"
	if err := os.RemoveAll(filepath.Join(p.home, "model")); err != nil {
		p.t.Fatal(err)
	}
	record := filepath.Join(p.home, ".pulled", "author--model@v1")
	for _, args := range [][]string{nil, {"--unpinned"}, {"--sha256", pin}} {
		status, _, stderr := p.pull(args...)
		if status != exitFailed || !strings.Contains(stderr, "tokenizer.json: it has sha256") ||
			!strings.Contains(stderr, record) || p.installed() != nil {
			p.t.Errorf("%q: another tokenizer than at first: status %d, %s, installed %v", args, status, stderr, p.installed())
		}
	}
	h.files["tokenizer.json"] = "{}"
	if status, _, stderr := p.pull(); status != 0 {
		p.t.Errorf("the same files without a pin: status %d, %s", status, stderr)
	}
	if _, err := os.Stat(filepath.Join(p.home, "model", "vocab.txt")); err == nil {
		p.t.Error("a file that was not there at first was fetched")
	}
	if err := os.Remove(record); err != nil {
		p.t.Fatal(err)
	}
	if status, _, stderr := p.pull(); status != exitUsage || !strings.Contains(stderr, "--unpinned") {
		p.t.Errorf("without pin and record: status %d, %s", status, stderr)
	}
}

// --file chooses among several weight files, with a token if the hub wants one.
func TestModelsPull_FileAndToken(t *testing.T) {
	h := &hub{files: map[string]string{
		"config.json": `{"model_type": "other"}`, "tokenizer.json": `{}`, "onnx/model.onnx": "whole",
		"onnx/model_int8.onnx": "small",
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hf_secret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	p := newPuller(t, server.URL)
	token := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{"": "one token in one line", "a\nb": "one token in one line"} {
		if err := os.WriteFile(token, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if status, _, stderr := p.pull("--unpinned", "--token-file", token); status != exitUsage ||
			!strings.Contains(stderr, want) {
			t.Errorf("token %q: status %d, %s", content, status, stderr)
		}
	}
	if status, _, stderr := p.pull("--unpinned"); status != exitFailed || !strings.Contains(stderr, "--token-file") {
		t.Errorf("without a token: status %d, %s", status, stderr)
	}
	if err := os.WriteFile(token, []byte("hf_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	small := []string{"--token-file", token, "--file", "onnx/model_int8.onnx", "--name", "small"}
	if status, _, stderr := p.pull(small...); status != exitUsage || !strings.Contains(stderr, "--sha256") {
		t.Errorf("unpinned: status %d, %s", status, stderr)
	}
	if status, _, stderr := p.pull(append(small, "--unpinned")...); status != 0 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	if got, err := os.ReadFile(filepath.Join(p.home, "small", "model.onnx")); err != nil || string(got) != "small" {
		t.Errorf("the graph is %q, %v", got, err)
	}
	// A pin of one file does not apply to another, and both are kept.
	whole := []string{"--token-file", token, "--file", "onnx/model.onnx"}
	if status, _, stderr := p.pull(whole...); status != exitUsage || !strings.Contains(stderr, "--sha256") {
		t.Errorf("another file, unpinned: status %d, %s", status, stderr)
	}
	sum := sha256.Sum256([]byte("whole"))
	if status, _, stderr := p.pull(append(whole, "--sha256", hex.EncodeToString(sum[:]))...); status != 0 {
		t.Errorf("another file: status %d, %s", status, stderr)
	}
	h.files["onnx/model_int8.onnx"] = "other"
	if status, _, stderr := p.pull(append(small, "--unpinned")...); status != exitFailed ||
		!strings.Contains(stderr, "its pin says") {
		t.Errorf("another content than at first: status %d, %s", status, stderr)
	}
}
