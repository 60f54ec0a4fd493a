//go:build !linux

package main

import (
	"syscall"
	"time"
)

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// cpuTime is not known here.
func cpuTime(int) time.Duration { return 0 }

func endedChildren(int) time.Duration { return 0 }

func cpuClock(int) (time.Duration, bool) { return 0, false }

func descendants(pid int) []int { return []int{pid} }
