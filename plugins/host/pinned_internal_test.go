package host

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestTrust_WhoWritesAPinnedFileMakesNoScriptOfIt: no copy is made of a script, as its interpreter opens the path
// again. A file that is a script only at that moment, and the pinned program when it is hashed, is not run.
func TestTrust_WhoWritesAPinnedFileMakesNoScriptOfIt(t *testing.T) {
	t.Parallel()
	if verifiedPath() == "" {
		t.Skip("programs are run by their paths here")
	}
	o := Options{Path: filepath.Join(t.TempDir(), "plugin")}
	program := bytes.Repeat([]byte("program."), 1<<10)
	if err := os.WriteFile(o.Path, program, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(o.Path, 0o775); err != nil { // others may write it
		t.Fatal(err)
	}
	var err error
	if o.SHA256, err = Sum(o.Path); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(o.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			head := [][]byte{[]byte("#!"), program[:2]}[n%2]
			if _, err := file.WriteAt(head, 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	accepted := 0
	for range 5000 {
		f, err := openVerified(o)
		if err != nil {
			continue
		}
		accepted++
		its, err := f.Stat()
		writable, failed := os.Stat(o.Path)
		if _ = f.Close(); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if os.SameFile(its, writable) {
			t.Fatal("the file itself would be run, and its writer may change it after the check")
		}
	}
	if accepted == 0 {
		t.Error("the program was never accepted")
	}
}
