package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readCPUTimes adds up what the threads of a process had so far. False: the system does not tell.
func readCPUTimes(pid int) (cpuTimes, bool) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return cpuTimes{}, false
	}
	var sum cpuTimes
	found := false
	for _, path := range threads {
		content, err := os.ReadFile(path) // nanoseconds on a CPU, nanoseconds of waiting for one, and how often
		fields := strings.Fields(string(content))
		if err != nil || len(fields) < 2 {
			continue // it has just ended
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

// lowest is the priority of those who get what others leave.
const lowest = 19

// lowerPriority gives all threads of a process group the lowest priority. Anybody may do that to his own processes.
func lowerPriority(pgid int) error { return unix.Setpriority(unix.PRIO_PGRP, pgid, lowest) }
