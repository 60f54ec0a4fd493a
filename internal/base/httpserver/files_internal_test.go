package httpserver

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe in place of a tokens file would block every request.
func TestTrust_APipeIsNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Files[string]{Paths: []string{path}, Parse: func(b [][]byte) (string, error) { return string(b[0]), nil }}
	if err := f.Load(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Load(); err == nil || f.Now() != "first" {
		t.Error("a pipe is read")
	}
}
