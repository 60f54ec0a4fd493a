// Package onnxtest finds the model and the library for tests of the ONNX plugin. A test without them fails and says
// which command fetches them; it does not skip.
package onnxtest

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ModelName is the model that the reference data of the tests was made with.
const ModelName = "all-MiniLM-L6-v2"

// Model returns the folder of the default model: EMBEDSIDECAR_PLUGIN_MODEL, or where tools/fetch-model.sh puts it.
func Model(t testing.TB) string {
	t.Helper()
	return need(t, "EMBEDSIDECAR_PLUGIN_MODEL", filepath.Join("models", ModelName, "model.onnx"), true,
		"tools/fetch-model.sh")
}

// ModelFiles returns the files of the default model but the sums.
func ModelFiles(t testing.TB) map[string]string {
	t.Helper()
	files, from := map[string]string{}, os.DirFS(Model(t))
	err := fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		content, err := fs.ReadFile(from, path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Library returns the shared library of ONNX Runtime: EMBEDSIDECAR_PLUGIN_ONNXRUNTIME, or where
// tools/fetch-onnxruntime.sh puts it.
func Library(t testing.TB) string {
	t.Helper()
	return need(t, "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME", filepath.Join("onnxruntime", "libonnxruntime.*"), false,
		"tools/fetch-onnxruntime.sh")
}

func need(t testing.TB, variable, pattern string, folder bool, command string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("find the cache folder: %v", err)
	}
	if xdg := os.Getenv("XDG_CACHE_HOME"); xdg != "" { // on macOS too, as in the scripts
		cache = xdg
	} else if home := os.Getenv("HOME"); home != "" {
		cache = filepath.Join(home, ".cache")
	}
	pattern = filepath.Join(cache, "embedsidecar", pattern)
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s: run %s, or set %s", pattern, command, variable)
	}
	path := found[len(found)-1]
	if folder {
		path = filepath.Dir(path)
	}
	return path
}

// Unzipped returns the content of a gzipped file.
func Unzipped(t testing.TB, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	content, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return string(content)
}

// SameTokens compares the tokens of 4,000 texts, mostly hostile, with those of the reference library: sums is a gzipped
// file with their number and the hash of their ids. It runs in a package beside wordpiece.
func SameTokens(t *testing.T, sums string, tokens func(text string) []int32) {
	t.Helper()
	texts := Lines[struct{ Text string }](t, "../wordpiece/testdata/tokens.jsonl.gz")
	want := strings.Fields(Unzipped(t, sums))
	if len(want) != 2*len(texts) {
		t.Fatalf("%d sums of %d texts", len(want)/2, len(texts))
	}
	wrong := 0
	for i, text := range texts {
		ids := tokens(text.Text)
		sum := sha256.Sum256([]byte(strings.Trim(fmt.Sprint(ids), "[]")))
		if fmt.Sprint(len(ids)) != want[2*i] || hex.EncodeToString(sum[:8]) != want[2*i+1] {
			if wrong++; wrong <= 3 {
				t.Errorf("text %d: %.200q: got %d ids %v, the reference has %s others", i, text.Text, len(ids), ids, want[2*i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d texts got other tokens", wrong, len(texts))
	}
}

// Lines reads a gzipped file of JSON objects, one a line.
func Lines[T any](t testing.TB, path string) []T {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(Unzipped(t, path)))
	var lines []T
	for decoder.More() {
		var line T
		if err := decoder.Decode(&line); err != nil {
			t.Fatalf("read %s, line %d: %v", path, len(lines)+1, err)
		}
		lines = append(lines, line)
	}
	return lines
}
