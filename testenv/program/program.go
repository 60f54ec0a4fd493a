// Package program writes programs that tests run.
package program

import (
	"os"
	"syscall"
)

// Write writes an executable file whose name it gets in one step, so that a program that is already there may be
// running. While the file is open for writing this process starts no other one: that would hold the file open as well
// until it has become its own program, and anyone who ran the file meanwhile would be told that it is busy.
func Write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	err := os.WriteFile(path+".new", content, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
