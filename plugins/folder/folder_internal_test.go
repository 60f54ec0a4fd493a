package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFolder_WhatIsLoadedIsWhatWasCompared: a library opens a file by path after its verification. A file that was
// replaced meanwhile is detected, even if the first one is back. A folder that replaces the opened folder is not read.
func TestFolder_WhatIsLoadedIsWhatWasCompared(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only that a file is another in the end is noticed here")
		return
	}
	t.Parallel()
	parent := t.TempDir()
	home := filepath.Join(parent, "m")
	write := func(folder, name, content string) {
		t.Helper()
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(parent, from), filepath.Join(parent, to)); err != nil {
			t.Fatal(err)
		}
	}
	write(home, "model.onnx", "right")
	write(home, "weights.bin", "right")
	write(home, SumsFile, fmt.Sprintf("%x  model.onnx\n%x  ./weights.bin\n", sha256.Sum256([]byte("right")),
		sha256.Sum256([]byte("right"))))
	f, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	load := func() {
		t.Helper()
		if _, err := f.Read("model.onnx", 100); err != nil {
			t.Fatal(err)
		}
		if err := f.Verify("weights.bin"); err != nil {
			t.Fatal(err)
		}
	}
	load()
	if err := f.Unchanged("model.onnx", "./weights.bin"); err != nil {
		t.Errorf("nothing was changed: %v", err)
	}
	for _, name := range []string{"model.onnx", "weights.bin"} {
		load()
		rename("m/"+name, "kept")
		write(home, name, "wrong")
		if err := f.Unchanged("model.onnx", "weights.bin"); err == nil {
			t.Errorf("%s is another file", name)
		}
		rename("kept", "m/"+name)
		if err := f.Unchanged("model.onnx", "weights.bin"); err == nil {
			t.Errorf("%s was another file meanwhile", name)
		}
	}
	load()
	rename("m", "moved")
	write(home, "model.onnx", "wrong")
	if got, err := os.ReadFile(f.Inside("model.onnx")); err != nil || string(got) != "right" {
		t.Errorf("a folder in the place of the folder is read: %q, %v", got, err)
	}
}

// TestTrust_APipePutThereMidwayIsNotWaitedFor: a pipe that replaces a file while it is opened does not block.
func TestTrust_APipePutThereMidwayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := OpenRegular(func(name string, flag int, perm os.FileMode) (*os.File, error) {
			if err := errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)); err != nil {
				return nil, err
			}
			return os.OpenFile(name, flag, perm)
		}, path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("the pipe is opened: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("somebody is waited for who writes into the pipe")
	}
}
