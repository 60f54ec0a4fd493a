//go:build unix && !linux

package main

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// processesWith returns the processes that have a variable in their environment: the sidecar, its plugins, and what
// either left.
func processesWith(variable string) []int {
	list, err := exec.CommandContext(context.Background(), "ps", "axeww", "-o", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	var found []int
	for line := range strings.Lines(string(list)) {
		if words := strings.Fields(line); len(words) > 1 && strings.Contains(line, variable) {
			if pid, err := strconv.Atoi(words[0]); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}
