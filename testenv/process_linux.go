package testenv

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithUs makes the kernel stop a server when this process ends, even by SIGKILL.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT }

// freeMemory returns the free bytes of a folder in memory; 0 if the folder is not in memory.
func freeMemory(folder string) uint64 {
	var stat unix.Statfs_t
	if unix.Statfs(folder, &stat) != nil || stat.Type != unix.TMPFS_MAGIC ||
		unix.Access(folder, unix.W_OK|unix.X_OK) != nil {
		return 0
	}
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "MemAvailable:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	available, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return min(stat.Bavail*uint64(stat.Bsize), available<<10)
}
