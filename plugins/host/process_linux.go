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

// verifiedPath is where a program finds, when it is started, the file that is passed to it as its descriptor 3.
func verifiedPath() string {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return ""
	}
	return "/proc/self/fd/3"
}

// sealed returns a copy of a program in memory that nobody can change, and closes the file; or the file, where only
// root may write it.
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

// noNewPrivileges keeps what this thread starts from gaining privileges through set-uid files. It cannot be taken back.
func noNewPrivileges() error {
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// awaitExit waits until the child has ended. True: it is still to be reaped, so its number is still its own.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// reapGroup reaps what a plugin has left in its group. It becomes this process's child where this is the first process
// of a container, and would stay a zombie there.
func reapGroup(leader int) { reapAll(unix.P_PGID, leader) }

// reapAll waits for the end of killed processes, as far as they are children of this one.
func reapAll(kind, id int) {
	for {
		if err := unix.Waitid(kind, id, nil, unix.WEXITED, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return // there is none, or none any more
		}
	}
}

// hasEnded reports whether a child that has not been reaped has ended.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// noCoreDump keeps a process's memory, and so texts and keys, out of files.
func noCoreDump(pid int) error {
	return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
}

// limitMemory bounds the private writable memory of a process. Not its address space, of which Go and ONNX Runtime
// reserve far more than they use.
func limitMemory(pid int, limit uint64) error {
	return unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}, nil)
}
