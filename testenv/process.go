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

// Process is a running program and its end.
type Process struct {
	Done <-chan struct{} // closed at the end

	cmd *exec.Cmd
	err error // set before Done is closed
}

// StartProcess starts a program that ends when this process does. The kernel watches the thread that started it, not
// the process, so that thread is kept for as long as the program runs.
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

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode is its exit status once it has ended; -1 when a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

const dirPrefix = "embedsidecar-pg-"

// makeDir makes a folder that the server's user owns and can reach, locked for as long as this process lives. It is in
// memory if it need not be on a disk: a test's database is a thousand files that are gone a moment later.
func makeDir(onDisk bool) (string, *os.File, error) {
	parent := memoryDir()
	if onDisk || parent == "" {
		parent = tempDir()
	}
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return "", nil, err
	}
	// It gets its name when it is locked: a folder with a lock that nobody holds is an abandoned one, however new.
	lock, err := lockFile(filepath.Join(dir, newLockName), os.O_CREATE)
	if err == nil {
		err = errors.Join(os.Rename(filepath.Join(dir, newLockName), filepath.Join(dir, lockName)), GiveAway(dir))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// tempDir is where temporary files belong, unless the server's user cannot get there.
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

// sharedMemory is where Linux has a folder for files in memory.
const sharedMemory = "/dev/shm"

// roomInMemory is what must be free for servers to live in memory: those of two packages at a time take a gigabyte or
// two.
const roomInMemory = 6 << 30

// memoryDir is the folder for servers in memory; "" where there is none or too little of it, as in most containers, or
// where TMPDIR says another place.
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

// removeAbandoned removes folders of servers whose process was killed. Those of living processes are locked, and a
// server that is about to die still has a postmaster.pid.
func removeAbandoned() {
	onDisk, _ := filepath.Glob(filepath.Join(tempDir(), dirPrefix+"*")) // the pattern is a good one
	inMemory, _ := filepath.Glob(filepath.Join(sharedMemory, dirPrefix+"*"))
	for _, dir := range append(onDisk, inMemory...) {
		lock, err := lockFile(filepath.Join(dir, lockName), 0)
		if err != nil {
			continue
		}
		if !serverLives(dir) {
			_ = os.RemoveAll(dir) // another user's stays; it is not in our way
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

// Running reports whether a process is there and more than a zombie: in containers it may be that nobody ever reaps
// those.
func Running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil { // another system's, or gone
		return syscall.Kill(pid, 0) == nil
	}
	state := strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// serverUser is who servers run as: nobody when we are root.
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

// GiveAway makes a file or folder the property of who runs as Unprivileged.
func GiveAway(path string) error {
	uid, gid, other := serverUser()
	if !other {
		return nil
	}
	return os.Chown(path, uid, gid)
}

// Unprivileged lets a program run as a user who is not root: nobody when we are root, and else ourselves.
func Unprivileged() *syscall.SysProcAttr {
	uid, gid, other := serverUser()
	if !other {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}}
}
