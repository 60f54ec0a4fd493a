package model_test

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// tiny is a model of eight tokens, with vectors that are easy to add up.
var tiny = onnxtest.Tiny{
	Words: []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "query", "passage"},
	Table: [][]float32{{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {0, 1, 1}, {4, 0, 0}, {0, 8, 0}, {0, 0, 12}, {0, 0, 24}},
}

// tinyWith is the ONNX file of a variant.
func tinyWith(change func(m *onnxtest.Tiny)) string {
	m := tiny
	change(&m)
	return string(m.Graph())
}

func pooled(m *onnxtest.Tiny) { m.Pooled = true }

// weightsIn puts the weights into a file of their own.
func weightsIn(name string) func(m *onnxtest.Tiny) {
	return func(m *onnxtest.Tiny) { m.External = name }
}

// writeFolder writes files and SHA256SUMS into a new folder.
func writeFolder(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	onnxtest.WriteFolder(t, folder, files)
	return folder
}

// openWith opens a model, on one thread if the options name no number, and closes it with the test.
func openWith(t testing.TB, options model.Options) (*model.Model, error) {
	t.Helper()
	options.Library, options.Threads = onnxtest.Library(t), cmp.Or(options.Threads, 1)
	m, err := model.Open(t.Context(), options)
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return m, err
}

func openFolder(t testing.TB, folder string) (*model.Model, error) {
	t.Helper()
	return openWith(t, model.Options{Folder: folder})
}

// tryTiny opens the tiny model with a user's options and some of its files changed; "" removes one.
func tryTiny(t testing.TB, options model.Options, changes map[string]string) (*model.Model, error) {
	t.Helper()
	files := tiny.Files()
	for name, content := range changes {
		files[name] = content
		if content == "" {
			delete(files, name)
		}
	}
	options.Folder = writeFolder(t, files)
	return openWith(t, options)
}

func openTiny(t testing.TB, changes map[string]string) (*model.Model, error) {
	t.Helper()
	return tryTiny(t, model.Options{}, changes)
}

// mustLink makes a link, and fails where the file system has none.
func mustLink(t testing.TB, target, link string) {
	t.Helper()
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(fmt.Errorf("make link: %w", err))
	}
}
