package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// times reads a process's parent, its CPU time, and that of its children that have ended, from Linux's /proc.
func times(pid int) (parent int, own, ended time.Duration, ok bool) {
	const ticks = 100 // per second, on every Linux there is
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, false
	}
	// The name stands in parentheses and may hold anything, parentheses included.
	var state string
	var of [14]int64
	values := []any{&state}
	for i := range of {
		values = append(values, &of[i])
	}
	if _, err := fmt.Sscan(string(b[strings.LastIndexByte(string(b), ')')+1:]), values...); err != nil {
		return 0, 0, 0, false
	}
	in := func(n int64) time.Duration { return time.Duration(n) * time.Second / ticks }
	return int(of[0]), in(of[10] + of[11]), in(of[12] + of[13]), true
}

// endedChildren is the CPU time of a process's children that have ended, and of theirs.
func endedChildren(pid int) time.Duration {
	_, _, ended, _ := times(pid)
	return ended
}

// cpuTime is the CPU time that a process and all that it started have used, those that ended included.
func cpuTime(pid int) (sum time.Duration) {
	for _, id := range descendants(pid) {
		_, own, ended, _ := times(id)
		sum += own + ended
	}
	return sum
}

// cpuClock reads the clock of the CPU time that one process has used, its children not included. It counts in
// nanoseconds, where /proc has hundredths of a second.
func cpuClock(pid int) (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED; clock_getcpuclockid(3) makes the clock's number like this
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		return 0, false
	}
	return time.Duration(at.Nano()), true
}

// descendants are a process and all that it started and that is still there.
func descendants(pid int) []int {
	folders, _ := filepath.Glob("/proc/[0-9]*") // the pattern is a good one
	children := map[int][]int{}
	for _, folder := range folders {
		if id, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			if parent, _, _, ok := times(id); ok {
				children[parent] = append(children[parent], id)
			}
		}
	}
	found := []int{pid}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// resident reads how much memory of a process is resident, and the most that ever was, in MB of a million bytes.
func resident(pid int) (now, most float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for name, into := range map[string]*float64{"VmRSS:": &now, "VmHWM:": &most} {
		_, rest, _ := strings.Cut(string(b), name)
		if _, err := fmt.Sscan(rest, into); err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		*into *= 1024.0 / 1e6
	}
	return now, most, nil
}
