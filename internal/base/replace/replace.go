// Package replace writes files atomically.
package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File replaces a file: a reader sees the old or the new content, even after a power failure.
func File(path string, content []byte, mode fs.FileMode) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	f, err := os.CreateTemp(folder.Name(), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return folder.Sync()
}
