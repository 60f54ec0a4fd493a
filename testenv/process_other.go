//go:build unix && !linux

package testenv

import "os/exec"

// dieWithUs does nothing here: other systems have no signal for a parent's death. Servers of a killed test must be
// stopped by hand there.
func dieWithUs(*exec.Cmd) {}

// freeMemory tells that no folder is in memory here.
func freeMemory(string) uint64 { return 0 }
