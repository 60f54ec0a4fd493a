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
