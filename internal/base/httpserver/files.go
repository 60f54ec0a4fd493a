package httpserver

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// Files are some small files that are reloaded when they change. If they are invalid, for example while they are
// replaced, the previous content stays in use.
type Files[T any] struct {
	Paths []string
	Parse func(content [][]byte) (T, error)
	Log   *slog.Logger // nil: silent

	mu      sync.Mutex
	loaded  bool
	held    T
	sum     [sha256.Size]byte // of the content in use: modification times are too coarse to detect every write
	wrong   string            // the last reported error; "": none
	checked time.Time
}

const (
	// checkEvery is how often the files are checked for changes at most.
	checkEvery = time.Second
	// maxFile limits the size of one file.
	maxFile = 1 << 20
)

// Load reads the files for the first time.
func (f *Files[T]) Load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadLocked()
}

// Now returns the content in use.
func (f *Files[T]) Now() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.Paths) == 0 || time.Since(f.checked) <= checkEvery {
		return f.held
	}
	f.checked = time.Now()
	err, before := f.loadLocked(), f.wrong
	f.wrong = ""
	if err != nil {
		f.wrong = err.Error()
	}
	switch { // once per error, and once after it is fixed
	case f.Log == nil || f.wrong == before:
	case err != nil:
		f.Log.Error("file not reloaded: the previous content stays in use", "file", f.Paths[0], "error", err)
	default:
		f.Log.Info("file is valid again", "file", f.Paths[0])
	}
	return f.held
}

func (f *Files[T]) loadLocked() error {
	content := make([][]byte, len(f.Paths))
	sum := sha256.New()
	for i, path := range f.Paths {
		var err error
		if content[i], err = readSmall(path); err != nil {
			return err
		}
		one := sha256.Sum256(content[i])
		_, _ = sum.Write(one[:])
	}
	found := [sha256.Size]byte(sum.Sum(nil))
	if f.loaded && found == f.sum {
		return nil
	}
	held, err := f.Parse(content)
	if err != nil {
		return err
	}
	if f.loaded && f.Log != nil {
		f.Log.Info("file reloaded", "file", f.Paths[0])
	}
	f.loaded, f.held, f.sum = true, held, found
	return nil
}

// readSmall reads a small file.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not block on a pipe
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, cmp.Or(err, fmt.Errorf("%s is no file", path))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes are too many", path, maxFile)
	}
	return data, err
}
