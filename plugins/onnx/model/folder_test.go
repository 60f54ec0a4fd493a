package model_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got error %v, want one with %q", err, part)
		}
	}
}

func TestOpen_VerifiesEveryFile(t *testing.T) {
	for name := range tiny.Files() {
		folder := writeFolder(t, tiny.Files())
		path := filepath.Join(folder, name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = openFolder(t, folder)
		wantError(t, err, name+" has sha256", "damaged or was changed")
	}
}

func TestOpen_VerifiesListedFilesItDoesNotUse(t *testing.T) {
	folder := writeFolder(t, map[string]string{"README.md": "one"})
	files := tiny.Files()
	onnxtest.WriteFiles(t, folder, files)
	files["README.md"] = "two"
	onnxtest.WriteSums(t, folder, files)
	_, err := openFolder(t, folder)
	wantError(t, err, "README.md has sha256")
}

func TestOpen_NeedsSums(t *testing.T) {
	folder := writeFolder(t, tiny.Files())
	if err := os.Remove(filepath.Join(folder, "SHA256SUMS")); err != nil {
		t.Fatal(err)
	}
	_, err := openFolder(t, folder)
	wantError(t, err, "there is no SHA256SUMS", "sha256sum > SHA256SUMS")

	for _, line := range []string{
		"not a sum", "abcd  model.onnx", strings.Repeat("0", 64) + "  ../model.onnx",
		strings.Repeat("0", 64),
	} {
		if err := os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := openFolder(t, folder)
		wantError(t, err, "SHA256SUMS: line 1 is not")
	}

	files := tiny.Files()
	delete(files, "tokenizer.json")
	onnxtest.WriteSums(t, folder, files)
	_, err = openFolder(t, folder)
	wantError(t, err, "tokenizer.json is not listed in SHA256SUMS")
}

// A list by sha256sum -b, with ./ names, is also accepted.
func TestOpen_ReadsOtherFormsOfSums(t *testing.T) {
	folder := writeFolder(t, tiny.Files())
	path := filepath.Join(folder, "SHA256SUMS")
	sums, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(sums), "  ", " *./")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(t, folder); err != nil {
		t.Error(err)
	}
}

func TestOpen_NoFolder(t *testing.T) {
	_, err := openFolder(t, filepath.Join(t.TempDir(), "missing"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// Files outside the folder are not read, even if their sums match.
func TestOpen_StaysInTheFolder(t *testing.T) {
	for _, name := range []string{"model.onnx", "tokenizer.json", "config.json"} {
		outside := filepath.Join(t.TempDir(), "outside")
		if err := os.WriteFile(outside, []byte(tiny.Files()[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		folder := writeFolder(t, tiny.Files())
		mustLink(t, outside, filepath.Join(folder, name))
		_, err := openFolder(t, folder)
		wantError(t, err, name, "escapes")
	}
}

// A pinned sum is compared with the loaded weights, not with an earlier file.
func TestOpen_WeightsThatArePinned(t *testing.T) {
	folder := writeFolder(t, tiny.Files())
	sum := fmt.Sprintf("%X", sha256.Sum256([]byte(tiny.Files()["model.onnx"])))
	for pin, want := range map[string]string{sum: "", strings.Repeat("0", 64): "is to have 000"} {
		_, err := openWith(t, model.Options{Folder: folder, Weights: pin})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("pinned as %s: %v, want %q", pin, err, want)
		}
	}
}

func TestOpen_WeightsInAnotherFile(t *testing.T) {
	files := tiny.Files()
	files["model.onnx"] = tinyWith(weightsIn("weights/table.bin"))
	files["weights/table.bin"] = string(tiny.Weights())
	m, err := openFolder(t, writeFolder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if got := mustEmbed(t, m, "a")[0].Vector; got[0] != 5./3 {
		t.Errorf("got %v, want a vector from the other file", got)
	}

	folder := writeFolder(t, files)
	delete(files, "weights/table.bin")
	onnxtest.WriteSums(t, folder, files)
	_, err = openFolder(t, folder)
	wantError(t, err, "weights/table.bin is not listed")

	outside := filepath.Join(t.TempDir(), "table.bin")
	if err := os.WriteFile(outside, tiny.Weights(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, location := range []string{outside, "../table.bin", "weights/../../table.bin", "/etc/passwd", ""} {
		files := tiny.Files()
		files["model.onnx"] = tinyWith(weightsIn(location))
		if location == "" {
			files["model.onnx"] = strings.Replace(tinyWith(weightsIn("x")), "location", "lokation", 1)
		}
		_, err := openFolder(t, writeFolder(t, files))
		wantError(t, err, "outside the model folder: refused")
	}
}
