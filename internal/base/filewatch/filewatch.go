// Package filewatch reports changes of a file's content: written in place, replaced by another file (as editors do), or
// reached by a symbolic link that was changed (as in a Kubernetes volume).
package filewatch

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is the time without events before the file is read, because a write may be incomplete.
	quiet = 500 * time.Millisecond
	// atMost limits that wait.
	atMost = 5 * time.Second
	// lookEvery is how often the file is checked without an event, because not every file system reports changes.
	lookEvery = 10 * time.Second
	// most is how much of the file is compared.
	most = 8 << 20
)

// Each calls do once at the beginning and whenever the file's content has changed, one call at a time, until ctx ends.
// A file that is removed or unreadable counts as changed. While do returns false, it is called again even without a
// change.
func Each(ctx context.Context, path string, log *slog.Logger, do func(ctx context.Context) (done bool)) {
	w := &watch{path: path, log: log}
	w.open(ctx)
	defer w.close()
	before := sum(path)
	done := do(ctx)
	for w.wait(ctx) {
		w.open(ctx)
		if now := sum(path); now != before || !done {
			before = now
			done = do(ctx)
		}
	}
}

// watch reports events around a file.
type watch struct {
	path    string
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil: unavailable
	folders []string
	told    bool
}

// open watches the folders in which the path, or the target of a link in it, may be replaced.
func (w *watch) open(ctx context.Context) {
	folders := []string{filepath.Dir(w.path)}
	if target, err := filepath.EvalSymlinks(w.path); err == nil && filepath.Dir(target) != folders[0] {
		folders = append(folders, filepath.Dir(target))
	}
	if w.watcher != nil && len(folders) == len(w.folders) && folders[len(folders)-1] == w.folders[len(folders)-1] {
		return
	}
	w.close()
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		w.watcher, w.folders = watcher, folders
		for _, folder := range folders {
			if err = watcher.Add(folder); err != nil {
				break
			}
		}
	}
	if err != nil && !w.told {
		w.told = true
		w.log.WarnContext(ctx, "no file events: polling for changes",
			"file", w.path, "every", lookEvery.String(), "error", err)
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.watcher = nil
	}
}

// wait returns true after events, once it is quiet, or periodically; false: ctx has ended.
func (w *watch) wait(ctx context.Context) bool {
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	var events chan fsnotify.Event
	var problems chan error
	if w.watcher != nil {
		events, problems = w.watcher.Events, w.watcher.Errors
	}
	var still, late <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
			if still == nil { // otherwise a write may be incomplete
				return true
			}
		case <-still:
			return true
		case <-late:
			return true
		case err := <-problems:
			w.log.DebugContext(ctx, "file events may be lost: checking the file", "file", w.path, "error", err)
			return true
		case <-events:
			still = time.After(quiet)
			if late == nil {
				late = time.After(atMost)
			}
		}
	}
}

// sum identifies a content, or an error. It does not read a pipe, which could block forever.
func sum(path string) (hash [sha256.Size]byte) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return sha256.Sum256([]byte(info.Mode().Type().String()))
	}
	f, err := os.Open(path)
	if err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	defer func() { _ = f.Close() }()
	content := sha256.New()
	if _, err := io.Copy(content, io.LimitReader(f, most)); err != nil {
		return sha256.Sum256([]byte(err.Error()))
	}
	return [sha256.Size]byte(content.Sum(nil))
}
