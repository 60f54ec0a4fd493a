package filewatch_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/filewatch"
)

// follow watches a path and returns the reported contents in order.
func follow(t *testing.T, path string) <-chan string {
	t.Helper()
	told, began := make(chan string, 10), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		close(began)
		filewatch.Each(ctx, path, slog.New(slog.DiscardHandler), func(context.Context) bool {
			content, err := os.ReadFile(path)
			if err != nil {
				content = []byte("no file")
			}
			told <- string(content)
			return true
		})
	}()
	<-began
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return told
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is waits for a content. Earlier contents may be reported before it.
func is(t *testing.T, told <-chan string, want string) {
	t.Helper()
	for got := range told {
		if got == want {
			return
		}
	}
}

func TestEach_TellsOfAFileHoweverItIsChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write := func(path, content string) { must(t, os.WriteFile(path, []byte(content), 0o600)) }
	write(path, "one")
	told := follow(t, path)
	write(path, "two")
	is(t, told, "two")
	write(path+"~", "three")
	must(t, os.Rename(path+"~", path))
	is(t, told, "three")
	must(t, os.Remove(path))
	is(t, told, "no file")
	write(path, "four")
	is(t, told, "four")
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	is(t, told, "no file")
}

// A file that changes all the time is reported in between, and so is its last content.
func TestEach_TellsOfAFileThatNeverRests(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write := func(content string) { must(t, os.WriteFile(path, []byte(content), 0o600)) }
	write("first")
	told := follow(t, path)
	is(t, told, "first")
	changes := 0
	for again := time.NewTicker(60 * time.Millisecond); ; changes++ { // a thousand a minute
		<-again.C
		select {
		case <-told:
		default:
			write(strconv.Itoa(changes))
			continue
		}
		again.Stop()
		break
	}
	write("last")
	is(t, told, "last")
}

// A Kubernetes volume has the file behind two links, one of which is replaced.
func TestEach_FollowsLinksThatAreReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(name, content string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name, "file"), []byte(content), 0o600))
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..one", "one")
	path := filepath.Join(dir, "file")
	must(t, os.Symlink(filepath.Join("..data", "file"), path))
	told := follow(t, path)
	version("..two", "two")
	is(t, told, "two")
	version("..three", "three")
	is(t, told, "three")
}

// A pipe with the file's name is not read, because nothing might ever be written to it. A file that replaces it is
// reported.
func TestEach_WaitsForNoPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte("one"), 0o600))
	told := make(chan fs.FileMode, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go filewatch.Each(ctx, path, slog.New(slog.DiscardHandler), func(context.Context) bool {
		if info, err := os.Stat(path); err == nil {
			told <- info.Mode().Type()
		}
		return true
	})
	<-told // the content at the beginning
	must(t, syscall.Mkfifo(path+"~", 0o600))
	must(t, os.Rename(path+"~", path))
	for mode := range told {
		if mode == fs.ModeNamedPipe {
			break
		}
	}
	must(t, os.WriteFile(path+"~", []byte("two"), 0o600))
	must(t, os.Rename(path+"~", path))
	for mode := range told {
		if mode.IsRegular() {
			break
		}
	}
}
