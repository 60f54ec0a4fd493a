package model

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// cpusAtStart is GOMAXPROCS at start, before main lowers it.
var cpusAtStart = runtime.GOMAXPROCS(0)

// usableCPUs returns how many CPUs this process may use: those it may run on, or fewer by its cgroup's limit. Go's own
// value for a cgroup is at least two, which would throttle a cgroup of one CPU half of the time.
func usableCPUs() int {
	return max(1, min(cpusAtStart, cgroupCPUs("/proc/self/cgroup", "/sys/fs/cgroup")))
}

// cgroupCPUs returns the smallest limit of the process's cgroup (version 2) and its ancestors, rounded up; without a
// limit, a large number.
func cgroupCPUs(self, mount string) int {
	none := math.MaxInt
	data, err := os.ReadFile(self)
	if err != nil {
		return none
	}
	for line := range strings.Lines(string(data)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for folder := filepath.Clean("/" + path); ; folder = filepath.Dir(folder) {
			none = min(none, cpuMax(filepath.Join(mount, folder, "cpu.max")))
			if folder == "/" {
				break
			}
		}
	}
	return none
}

// cpuMax reads a cpu.max file, "quota period" or "max period".
func cpuMax(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return math.MaxInt
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return math.MaxInt
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || quota <= 0 || period <= 0 {
		return math.MaxInt
	}
	return int(math.Ceil(quota / period))
}
