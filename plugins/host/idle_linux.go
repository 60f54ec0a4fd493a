package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readCPUTimes adds up the CPU times of a process's threads. It returns false if the system does not report them.
func readCPUTimes(pid int) (cpuTimes, bool) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return cpuTimes{}, false
	}
	var sum cpuTimes
	found := false
	for _, path := range threads {
		content, err := os.ReadFile(path) // fields: nanoseconds on a CPU, nanoseconds waiting for one, and time slices
		fields := strings.Fields(string(content))
		if err != nil || len(fields) < 2 {
			continue // the thread has ended
		}
		used, err := strconv.ParseInt(fields[0], 10, 64)
		wait, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err != nil || err2 != nil {
			return cpuTimes{}, false
		}
		sum.used, sum.wait, found = sum.used+time.Duration(used), sum.wait+time.Duration(wait), true
	}
	return sum, found
}

// lowest is the lowest scheduling priority.
const lowest = 19

// lowerPriority gives all threads of a process group the lowest priority, which needs no privileges.
func lowerPriority(pgid int) error { return unix.Setpriority(unix.PRIO_PGRP, pgid, lowest) }
