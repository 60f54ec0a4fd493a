package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// processesWith returns the processes that have a variable in their environment: plugins, and what they left. Of the
// sidecar, which lets nobody but root look into it, whoever started it knows.
func processesWith(variable string) []int {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	var found []int
	for _, file := range files {
		environ, err := os.ReadFile(file) // fails for other users' processes and for those that just ended
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(environ, []byte{0}) {
			if string(entry) != variable {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				found = append(found, pid)
			}
			break
		}
	}
	return found
}
