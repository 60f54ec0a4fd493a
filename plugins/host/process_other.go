//go:build unix && !linux

package host

import (
	"errors"
	"os"
	"syscall"
)

// sysProcAttr puts the program into a process group of its own. Without Linux's Pdeathsig, only the lifeline ends a
// plugin whose host was killed.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func verifiedPath() string { return "" }

// sealed makes no copy: the program is run by its path.
func sealed(f *os.File, _ os.FileInfo) (*os.File, error) { return f, nil }

func onMainThread() bool { return false }

func noNewPrivileges() error { return nil }

// awaitExit leaves waiting and reaping to the caller.
func awaitExit(int) bool { return false }

func reapGroup(int) {}

func limitMemory(int, uint64) error { return errors.New("not supported by this system") }

func expendable(int) error { return nil }

func noCoreDump(int) error { return nil }

func (*group) memory() int64 { return 0 }

func killStrays(string) {}

func readCPUTimes(int) (cpuTimes, bool) { return cpuTimes{}, false }

func lowerPriority(int) error { return errors.New("not supported by this system") }

func hasEnded(int) bool { return false }
