// Package program writes programs that tests run.
package program

import (
	"os"
	"syscall"
)

// Write writes an executable file and renames it into place, so that it can replace a running program. Meanwhile this
// process starts no other process, which would inherit the open file, so that running the program could fail with
// ETXTBSY.
func Write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	err := os.WriteFile(path+".new", content, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
