// Package python tests the Python package for authors of plugins and its examples.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/plugins"
	programs "github.com/embedsidecar/embedsidecar/testenv/program"
)

// venv returns a Python environment with the libraries that the package needs.
var venv = sync.OnceValues(func() (string, error) {
	command := exec.Command("../../tools/python-venv.sh")
	command.Stderr = os.Stderr
	out, err := command.Output()
	return strings.TrimSpace(string(out)), err
})

// site installs the package from a copy of the clone, as a user does, and returns the folder.
var site = sync.OnceValues(func() (string, error) {
	python, err := venv()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "python-test-")
	if err != nil {
		return "", err
	}
	made = dir
	source := filepath.Join(dir, "source")
	if err := os.CopyFS(source, os.DirFS(".")); err != nil {
		return "", err
	}
	pip := exec.Command(filepath.Join(python, "bin", "python3"), "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check",
		"--no-deps", "--no-build-isolation", "--target", filepath.Join(dir, "site"), source)
	if out, err := pip.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install the package: %w\n%s", err, out)
	}
	return dir, nil
})

// made is the folder that site made; it is removed at the end.
var made string

func TestMain(m *testing.M) {
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(code)
}

// program writes a plugin that uses the package.
func program(t *testing.T, source string) (path string, env map[string]string) {
	t.Helper()
	dir, err := site()
	if err != nil {
		t.Fatal(err)
	}
	python, err := venv()
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(source, "\n") // not the Python that env would find
	path = filepath.Join(t.TempDir(), "embedsidecar-tested")
	if err := programs.Write(path, []byte("#!"+filepath.Join(python, "bin", "python3")+"\n"+body)); err != nil {
		t.Fatal(err)
	}
	return path, map[string]string{"PYTHONPATH": filepath.Join(dir, "site")}
}

// start runs a plugin that uses the package.
func start(t *testing.T, source string) *host.Host {
	t.Helper()
	path, env := program(t, source)
	return plugins.Start(t, host.Options{Path: path, Env: env})
}

func TestExample_KeepsTheContract(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("examples/embedsidecar-lengths")
	if err != nil {
		t.Fatal(err)
	}
	path, env := program(t, string(source))
	report := plugins.KeepsContract(t, conformance.Options{Path: path, Env: env})
	if report.Plugin != "lengths" || len(report.LeftOut) > 0 {
		t.Errorf("%+v", report)
	}
}

// A plugin written from the author's guide and the proto file alone.
func TestByHand_KeepsTheContract(t *testing.T) {
	t.Parallel()
	python, err := venv()
	if err != nil {
		t.Fatal(err)
	}
	messages := t.TempDir()
	protoc := exec.Command(filepath.Join(python, "bin", "python3"), "-m", "grpc_tools.protoc", "--proto_path=../proto",
		"--python_out="+messages, "--grpc_python_out="+messages, "embedder.proto")
	if out, err := protoc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	source, err := os.ReadFile("testdata/by_hand.py")
	if err != nil {
		t.Fatal(err)
	}
	path, _ := program(t, string(source))
	plugins.KeepsContract(t, conformance.Options{Path: path, Env: map[string]string{"PYTHONPATH": messages}})
}

// tester is a plugin with every kind of answer and failure.
const tester = `#
import sys
from embedsidecar_embedder import *

class Tester:
    def describe(self):
        print("describing", flush=True)  # must not get into the handshake
        return Info("tester", "2", [Model("m", "tester-fingerprint", dims=2, max_tokens=9, symmetric=False, max_batch=16)])

    def embed(self, model, kind, texts):
        answers = []
        for text in texts:
            if text == "again":
                raise Again("the provider rests", delay=7.5)
            if text == "room":
                raise MemoryError
            if text == "key":
                raise Misconfigured("the key is wrong")
            if text == "bug":
                raise KeyError("bug: " + text)
            if text == "short":
                answers.append([1.0])
            elif text == "refused":
                answers.append(Answer(error=TextError("refused", "not by us")))
            elif text == "later":
                answers.append(Answer(error=TextError("retry_later", "full", delay=3)))
            elif text == "":
                answers.append(Answer(empty=True))
            elif text == "cut":
                answers.append(Answer([1, 2], truncated=True, tokens=9))
            else:
                answers.append([float(len(text)), 2.0 if kind == QUERY else 1.0])
        return answers

    def tokenize(self, model, texts):
        if texts[0] == "cannot":
            raise NotImplementedError
        if texts[0] == "full":
            raise Again("the provider rests", delay=7.5)
        if texts[0] == "too many":
            return Tokens([[1]] * (len(texts) + 1))
        wrong = {"beyond": [7], "before": [-1], "down": [2, 1]}
        return Tokens([wrong.get(t) or [i + 1 for i, c in enumerate(t) if not c.isspace()] for t in texts], around=3)

print("before the handshake")
serve(Tester())
`

func TestAnswersAndFailures(t *testing.T) {
	t.Parallel()
	h := start(t, tester)
	about, err := h.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if about.Plugin != "tester" || about.Version != "2" || about.Dims != 2 || about.MaxTokens != 9 ||
		about.MaxBatch != 16 || about.Deterministic {
		t.Errorf("%+v", about)
	}
	results, err := h.Embed(t.Context(), embed.Query, []string{"four", "", "cut", "refused", "later"})
	if err != nil {
		t.Fatal(err)
	}
	if v := results[0].Vector; len(v) != 2 || v[0] != 4 || v[1] != 2 {
		t.Errorf("query: %v", v)
	}
	if !results[1].Empty || !results[2].Truncated || results[2].Tokens != 9 || results[2].Vector[1] != 2 {
		t.Errorf("%+v", results[1:3])
	}
	for i, code := range map[int]string{3: "refused", 4: "retry_later"} {
		if _, got := embed.Classify(results[i].Err); got != code {
			t.Errorf("text %d: %v, want %s", i, results[i].Err, code)
		}
	}
	for text, want := range map[string]struct {
		class embed.Class
		after time.Duration
		says  string
	}{
		"again": {embed.Transient, 7500 * time.Millisecond, "the provider rests"},
		"room":  {embed.Resource, 0, "MemoryError in embed at embedsidecar-tested"},
		"key":   {embed.Configuration, 0, "the key is wrong"},
		"bug":   {embed.Data, 0, "KeyError in embed at embedsidecar-tested"},
		"short": {embed.Data, 0, "ValueError in embed"},
	} {
		_, err := h.Embed(t.Context(), embed.Document, []string{text})
		class, _ := embed.Classify(err)
		whole, ok := err.(*embed.Error) //nolint:errorlint // the host returns it bare
		if !ok || class != want.class || whole.RetryAfter != want.after || !strings.Contains(err.Error(), want.says) ||
			strings.Contains(err.Error(), "bug: ") {
			t.Errorf("%s: %v, want %s after %s", text, err, want.class, want.after)
		}
	}
}

// Offsets are indices into a str for the author and bytes for the host.
func TestTokens(t *testing.T) {
	t.Parallel()
	h := start(t, tester)
	got, err := h.Tokenize(t.Context(), []string{"ab c", "", "é\u4f60\U0001f642 e\u0301", " ", "\u0000"})
	want := embed.Tokens{Ends: [][]int{{1, 2, 4}, {}, {2, 5, 9, 11, 13}, {}, {1}}, Around: 3}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]embed.Class{
		"cannot": embed.Configuration, "full": embed.Transient,
		"too many": embed.Data, "beyond": embed.Data, "before": embed.Data, "down": embed.Data,
	} {
		_, err := h.Tokenize(t.Context(), []string{text})
		if class, _ := embed.Classify(err); err == nil || class != want ||
			errors.Is(err, embed.ErrNoTokens) != (text == "cannot") {
			t.Errorf("%s: %v, want class %s", text, err, want)
		}
	}
	none := start(t, strings.Replace(tester, "def tokenize", "def other", 1))
	if _, err := none.Tokenize(t.Context(), []string{"a"}); !errors.Is(err, embed.ErrNoTokens) {
		t.Errorf("a plugin without the method: %v, want ErrNoTokens", err)
	}
}

// A model with reranks gets calls of rerank, not of embed.
func TestRerank(t *testing.T) {
	t.Parallel()
	h := start(t, `
from embedsidecar_embedder import Info, Model, OutOfResources, serve

class Reranker:
    def describe(self):
        return Info("lengths", "1", [Model("m", "lengths-scores-1", dims=1, reranks=True)])

    def embed(self, model, kind, texts):
        raise NotImplementedError

    def rerank(self, model, query, texts):
        if query == "full":
            raise OutOfResources("later")
        if query == "few":
            return [1.0]
        return [len(text) / 4 for text in texts]

serve(Reranker())
`)
	scores, err := h.Rerank(t.Context(), "q", []string{"ab", "", "abcd"})
	if err != nil || !slices.Equal(scores, []float32{0.5, 0, 1}) {
		t.Errorf("%v, %v", scores, err)
	}
	for query, want := range map[string]embed.Class{"full": embed.Resource, "few": embed.Data} {
		_, err := h.Rerank(t.Context(), query, []string{"a", "b"})
		if class, _ := embed.Classify(err); err == nil || class != want {
			t.Errorf("%s: %v, want class %s", query, err, want)
		}
	}
}

// An abandoned call does not keep the plugin from exiting when asked.
func TestShutdown_WhileACallGoesOn(t *testing.T) {
	t.Parallel()
	path, env := program(t, `#
import os
import threading
from embedsidecar_embedder import serve_function

def embed(texts):
    open(os.environ["EMBEDSIDECAR_PLUGIN_BUSY"], "w").close()
    threading.Event().wait()

serve_function(embed, name="endless", version="1", dims=2, fingerprint="endless:1")
`)
	env["EMBEDSIDECAR_PLUGIN_BUSY"] = filepath.Join(t.TempDir(), "busy")
	run, err := host.Inspect(t.Context(), host.Options{Path: path, Env: env, StartTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Close() }()
	ctx, giveUp := context.WithCancel(t.Context())
	call := make(chan error, 1)
	go func() {
		_, err := run.Client().Embed(ctx, &pluginpb.EmbedRequest{
			Model: "endless", Kind: pluginpb.Kind_KIND_DOCUMENT,
			Texts: []string{"a"},
		})
		call <- err
	}()
	testenv.Eventually(t, 5*time.Minute, func() (bool, string) {
		_, err := os.Stat(env["EMBEDSIDECAR_PLUGIN_BUSY"])
		return err == nil, "the call has not begun"
	})
	giveUp()
	if err := <-call; err == nil {
		t.Error("the endless call was answered")
	}
	if !run.Shutdown(t.Context(), 5*time.Minute) {
		t.Error("the plugin is still there")
	}
}

// The messages must be those of the proto file.
func TestContract_IsUpToDate(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("embedsidecar_embedder/contract.binpb")
	if err != nil {
		t.Fatal(err)
	}
	if err := sameDescriptor(content); err != nil {
		t.Errorf("%v: run go generate ./plugins/proto", err)
	}
}
