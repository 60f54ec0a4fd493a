//go:build unix

package models_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/named/models"
)

// TestImport_TakesRegularFilesAlone: a pipe in a folder, which blocks readers until something is written to it, is
// refused without waiting.
func TestImport_TakesRegularFilesAlone(t *testing.T) {
	t.Parallel()
	const patience = 5 * time.Minute
	for _, name := range []string{"config.json", "modules.json", "vocab.txt", "1_Pooling/config.json", weights} {
		o := importing(t, published())
		path := filepath.Join(o.From, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := models.Import(t.Context(), o)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: a pipe is imported", name)
			}
		case <-time.After(patience):
			t.Errorf("%s: it waits for somebody who writes", name)
		}
	}
	model := write(t, map[string]string{models.SumsFile: "", "a": "a"})
	pipe := filepath.Join(model, "pipe")
	sums := "0000000000000000000000000000000000000000000000000000000000000000  pipe\n"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600),
		os.WriteFile(filepath.Join(model, models.SumsFile), []byte(sums), 0o600)); err != nil {
		t.Fatal(err)
	}
	if problems, err := models.Verify(t.Context(), model); err != nil || len(problems) == 0 {
		t.Errorf("verify: %q, %v", problems, err)
	}
}
