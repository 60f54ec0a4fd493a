// Hideamx runs a command as on a CPU without AMX: the kernel refuses AMX to the command and its children.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "hideamx:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	if len(command) == 0 {
		return fmt.Errorf("usage: hideamx COMMAND [ARGUMENT ...]")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	if err := onnxtest.HideAMX(); err != nil {
		return fmt.Errorf("hide AMX: %w", err)
	}
	if onnxtest.AMX() {
		return fmt.Errorf("AMX is still available")
	}
	//nolint:gosec,forbidigo // it is asked to; what it starts gets all of the environment
	return syscall.Exec(path, command, os.Environ())
}
