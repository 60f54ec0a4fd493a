package replace_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/replace"
)

// After concurrent writes, the file has the content of one of them, and no other files are left.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			content := make([]byte, 1+i<<10)
			if err := replace.File(path, content, 0o640); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(path); err != nil || len(got)%(1<<10) != 1 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	writers.Wait()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"folder", "none/file"} {
		if err := replace.File(filepath.Join(dir, wrong), nil, 0o600); err == nil {
			t.Errorf("%s is replaced", wrong)
		}
	}
	entries, err := os.ReadDir(dir)
	if info, failed := os.Stat(path); err != nil || failed != nil || len(entries) != 2 || info.Mode() != 0o640 {
		t.Errorf("left are %v, %v, the file with %v", entries, err, info)
	}
}
