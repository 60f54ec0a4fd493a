package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes make a child end with us, however we end.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// cpuTime returns the CPU time that a process and all that it started have used, those that ended included.
func cpuTime(pid int) time.Duration {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	used, children := map[int]time.Duration{}, map[int][]int{}
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, t, ok := readStat(id); ok {
			used[id] = t
			children[parent] = append(children[parent], id)
		}
	}
	var sum func(id int) time.Duration
	sum = func(id int) time.Duration {
		total := used[id]
		for _, c := range children[id] {
			total += sum(c)
		}
		return total
	}
	return sum(pid)
}

// readStat reads a process's parent and its CPU time with that of its children that have ended.
func readStat(pid int) (parent int, used time.Duration, ok bool) {
	parent, own, ended, ok := readTimes(pid)
	return parent, own + ended, ok
}

// readTimes reads a process's parent, its CPU time, and that of its children that have ended.
func readTimes(pid int) (parent int, own, ended time.Duration, ok bool) {
	const (
		ticks                                  = 100 // per second, on every Linux there is
		fieldParent, fieldOwn, fieldEnded, end = 1, 11, 13, 15
	)
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	// The name stands in parentheses and may hold anything, parentheses included.
	fields := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(fields) < end {
		return 0, 0, 0, false
	}
	if parent, err = strconv.Atoi(fields[fieldParent]); err != nil {
		return 0, 0, 0, false
	}
	for i, f := range fields[fieldOwn:end] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, 0, 0, false
		}
		if d := time.Duration(n) * time.Second / ticks; fieldOwn+i < fieldEnded {
			own += d
		} else {
			ended += d
		}
	}
	return parent, own, ended, true
}

// endedChildren is the CPU time of a process's children that have ended, and of theirs.
func endedChildren(pid int) time.Duration {
	_, _, ended, _ := readTimes(pid)
	return ended
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
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{pid}
	}
	children := map[int][]int{}
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			if parent, _, ok := readStat(id); ok {
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
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		var into *float64
		switch name, _, _ := strings.Cut(line, ":"); name {
		case "VmRSS":
			into = &now
		case "VmHWM":
			into = &most
		default:
			continue
		}
		const kib = 1024.0 / 1e6
		n, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		*into = n * kib
	}
	return now, most, nil
}
