package main

import (
	"os"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	t.Parallel()
	before := cpuTime(os.Getpid())
	deadline := time.Now().Add(5 * time.Minute)
	for cpuTime(os.Getpid()) == before {
		if cpuTime(1<<30) != 0 {
			t.Fatal("a process that is not there has used time")
		}
		if time.Now().After(deadline) {
			t.Fatal("minutes of work took no CPU time")
		}
	}
}

// TestCPUClock compares a process's own clock with what /proc says of it.
func TestCPUClock(t *testing.T) {
	t.Parallel()
	var sum int
	for began := time.Now(); ; sum++ {
		if used, ok := cpuClock(os.Getpid()); !ok || used >= 100*time.Millisecond {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal("no CPU time was used")
		}
	}
	before, ok := cpuClock(os.Getpid())
	s := stat(os.Getpid())
	own := ticks(int(s.UTime + s.STime))
	after, _ := cpuClock(os.Getpid())
	const tick = 20 * time.Millisecond // user and system time are rounded separately
	if !ok || own < before-tick || own > after+tick {
		t.Errorf("/proc has %s, the clock %s to %s", own, before, after)
	}
	if pids := descendants(os.Getpid()); pids[0] != os.Getpid() {
		t.Errorf("descendants %v", pids)
	}
	const beyond = 1 << 22 // Linux's largest possible pid_max
	if _, ok := cpuClock(beyond); ok {
		t.Error("a process that is not there has a clock")
	}
}
