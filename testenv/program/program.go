// Package program builds and writes programs that tests run.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Build builds the Go program in the folder source under the given name and passes its path to run, for a TestMain. It
// returns the exit status of run, or 1 if the program cannot be built. env is added to the environment of the compiler.
func Build(source, name string, run func(path string) int, env ...string) int {
	dir, err := os.MkdirTemp("", "built-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-o", path, source) //nolint:noctx // TestMain has none
	build.Env = append(os.Environ(), env...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %s\n%s", name, err, out)
		return 1
	}
	return run(path)
}

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
