package testenv

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Process is a started program.
type Process struct {
	Done <-chan struct{} // closed at the end

	cmd *exec.Cmd
	err error // set before Done is closed
}

// StartProcess starts a program that ends with this process. The kernel watches the thread that started it, so that
// thread is kept until the program ends.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	done := make(chan struct{})
	p := &Process{cmd: cmd, Done: done}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		dieWithUs(cmd)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		if p.err == nil {
			p.err = errors.New("exit status 0")
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Signal sends a signal to it.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// PID returns its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode returns its exit status after it has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

const dirPrefix = "embedsidecar-pg-"

// makeDir makes a folder that the server's user owns and can reach, locked while this process lives. Unless onDisk is
// set, it is in memory if possible, because a test's database has a thousand short-lived files.
func makeDir(onDisk bool) (string, *os.File, error) {
	parent := memoryDir()
	if onDisk || parent == "" {
		parent = tempDir()
	}
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return "", nil, err
	}
	// The lock file is renamed after it is locked: a folder with an unlocked lock file counts as abandoned.
	lock, err := lockFile(filepath.Join(dir, newLockName), os.O_CREATE)
	if err == nil {
		err = errors.Join(os.Rename(filepath.Join(dir, newLockName), filepath.Join(dir, lockName)), GiveAway(dir))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// tempDir is the folder for temporary files, if the server's user can reach it.
func tempDir() string {
	dir := os.TempDir()
	if os.Getuid() != 0 {
		return dir
	}
	for parent := dir; ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil || info.Mode().Perm()&1 == 0 {
			return "/tmp"
		}
		if parent == filepath.Dir(parent) {
			return dir
		}
	}
}

// sharedMemory is Linux's folder for files in memory.
const sharedMemory = "/dev/shm"

// roomInMemory is the free memory required for servers in memory: those of two concurrent packages need one or two
// gigabytes.
const roomInMemory = 6 << 30

// memoryDir is the folder for servers in memory; "" if there is none, it has too little room, as in most containers, or
// TMPDIR is set.
func memoryDir() string {
	if os.Getenv("TMPDIR") != "" || freeMemory(sharedMemory) < roomInMemory {
		return ""
	}
	return sharedMemory
}

const (
	lockName    = ".lock"
	newLockName = ".lock.new"
)

func lockFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeAbandoned removes folders of servers whose process was killed. It skips folders that are locked by a living
// process or have a postmaster.pid of a dying server.
func removeAbandoned() {
	onDisk, _ := filepath.Glob(filepath.Join(tempDir(), dirPrefix+"*")) // the pattern is a good one
	inMemory, _ := filepath.Glob(filepath.Join(sharedMemory, dirPrefix+"*"))
	for _, dir := range append(onDisk, inMemory...) {
		lock, err := lockFile(filepath.Join(dir, lockName), 0)
		if err != nil {
			continue
		}
		if !serverLives(dir) {
			_ = os.RemoveAll(dir) // another user's folder stays, which does no harm
		}
		_ = lock.Close()
	}
}

func serverLives(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	return err == nil && Running(pid)
}

// Running reports whether a process exists and is not a zombie, since some containers never reap zombies.
func Running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil { // not Linux, or ended
		return syscall.Kill(pid, 0) == nil
	}
	state := strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// serverUser is the user of servers: nobody if this process runs as root.
func serverUser() (uid, gid int, other bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	if u, err := user.Lookup("nobody"); err == nil {
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID == nil && errGID == nil && uid > 0 {
			return uid, gid, true
		}
	}
	return 65534, 65534, true
}

// GiveAway changes the owner of a file or folder to the user of Unprivileged.
func GiveAway(path string) error {
	uid, gid, other := serverUser()
	if !other {
		return nil
	}
	return os.Chown(path, uid, gid)
}

// Unprivileged makes a program run as nobody if this process runs as root.
func Unprivileged() *syscall.SysProcAttr {
	uid, gid, other := serverUser()
	if !other {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}}
}
