package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts the program into a process group of its own and ties its life to the thread that starts it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// verifiedPath is the path of descriptor 3 in the started program: the verified file.
func verifiedPath() string {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return ""
	}
	return "/proc/self/fd/3"
}

// sealed returns a sealed in-memory copy of a program and closes the file. If only root can write the file, it returns
// the file itself.
func sealed(f *os.File, info os.FileInfo) (*os.File, error) {
	const others = 0o022
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && info.Mode().Perm()&others == 0 {
		return f, nil
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(filepath.Base(f.Name()), flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(filepath.Base(f.Name()), flags)
	}
	if err != nil {
		return f, fmt.Errorf("copy %s into memory (not needed where only root may write the file): %w", f.Name(), err)
	}
	memory := os.NewFile(uintptr(fd), f.Name())
	_, err = io.Copy(memory, f)
	if err == nil {
		_, err = unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		_, err = memory.Seek(0, io.SeekStart)
	}
	return memory, errors.Join(err, f.Close())
}

// onMainThread reports whether this is the process's first thread.
func onMainThread() bool { return unix.Gettid() == unix.Getpid() }

// noNewPrivileges keeps programs that this thread starts from gaining privileges through set-uid files. It cannot be
// undone.
func noNewPrivileges() error {
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// awaitExit waits until the child has ended, without reaping it. It returns true if the child is a zombie, whose pid
// cannot be reused yet.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// reapGroup reaps the processes that a plugin has left in its group. They become children of this process if it is the
// init process of a container, and would stay zombies.
func reapGroup(leader int) { reapAll(unix.P_PGID, leader) }

// reapAll waits for killed processes that are children of this one.
func reapAll(kind, id int) {
	for {
		if err := unix.Waitid(kind, id, nil, unix.WEXITED, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // no children left
		}
	}
}

// hasEnded reports whether an unreaped child has ended.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// noCoreDump disables core dumps, which would write texts and keys to disk.
func noCoreDump(pid int) error {
	return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
}

// limitMemory bounds the private writable memory of a process. It does not bound the address space, because Go and ONNX
// Runtime reserve far more than they use.
func limitMemory(pid int, limit uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}, nil)
}
