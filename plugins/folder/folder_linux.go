package folder

import (
	"os"
	"syscall"
)

// changedAt is when a file, or its name, was last changed, which nobody can set back.
func changedAt(info os.FileInfo) syscall.Timespec {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim
	}
	return syscall.Timespec{}
}
