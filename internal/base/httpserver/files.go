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

// Files are some small files that are read again when they change. Files that cannot be used, as in the middle of being
// replaced, leave in force what they held before.
type Files[T any] struct {
	Paths []string
	Parse func(content [][]byte) (T, error)
	Log   *slog.Logger // nil: silent

	mu      sync.Mutex
	loaded  bool
	held    T
	sum     [sha256.Size]byte // of what is in force: two writes may fall into one tick of the file system's clock
	wrong   string            // what is wrong with the files since an earlier look, as it was told; "": nothing
	checked time.Time
}

const (
	// checkEvery is how often files are looked at for changes, at most: once per question, and not for each.
	checkEvery = time.Second
	// maxFile bounds what is read of one.
	maxFile = 1 << 20
)

// Load reads the files for the first time.
func (f *Files[T]) Load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadLocked()
}

// Now returns what is in force.
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
	switch { // once for each thing that is wrong, and once when nothing is any more
	case f.Log == nil || f.wrong == before:
	case err != nil:
		f.Log.Error("file not read again: what it held before stays in use", "file", f.Paths[0], "error", err)
	default:
		f.Log.Info("file can be read again", "file", f.Paths[0])
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
		f.Log.Info("file read again", "file", f.Paths[0])
	}
	f.loaded, f.held, f.sum = true, held, found
	return nil
}

// readSmall reads a small file.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // of a pipe nobody waits for the other end
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
