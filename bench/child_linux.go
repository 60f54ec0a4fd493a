package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	const (
		ticks                       = 100 // per second, on every Linux there is
		fieldParent, fieldTime, end = 1, 11, 15
	)
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// The name stands in parentheses and may hold anything, parentheses included.
	fields := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(fields) < end {
		return 0, 0, false
	}
	if parent, err = strconv.Atoi(fields[fieldParent]); err != nil {
		return 0, 0, false
	}
	for _, f := range fields[fieldTime:end] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, 0, false
		}
		used += time.Duration(n) * time.Second / ticks
	}
	return parent, used, true
}
