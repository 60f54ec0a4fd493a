//go:build !linux

package main

import (
	"errors"
	"syscall"
	"time"
)

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// cpuTime is not known here.
func cpuTime(int) time.Duration { return 0 }

func endedChildren(int) time.Duration { return 0 }

func cpuClock(int) (time.Duration, bool) { return 0, false }

func descendants(pid int) []int { return []int{pid} }

func resident(int) (now, most float64, err error) {
	return 0, 0, errors.New("the memory of a process is known on Linux only")
}
