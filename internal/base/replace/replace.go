// Package replace writes files that are whole at any time.
package replace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// File puts a new file into the place of another: a reader sees the one or the other, also after the power has failed.
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
