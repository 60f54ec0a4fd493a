package models

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps two pulls from writing into one folder. The lock ends with the process.
func lock(folder string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(folder, ".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process pulls it right now (%s): %w", folder, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
