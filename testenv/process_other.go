//go:build unix && !linux

package testenv

import "os/exec"

// dieWithUs does nothing: other systems have no signal for a parent's death. Servers of a killed test must be stopped
// by hand.
func dieWithUs(*exec.Cmd) {}

// freeMemory returns 0: no folder counts as in memory.
func freeMemory(string) uint64 { return 0 }
