package folder

import (
	"os"
	"syscall"
)

// changedAt is a file's ctime, which cannot be set back.
func changedAt(info os.FileInfo) syscall.Timespec {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim
	}
	return syscall.Timespec{}
}
