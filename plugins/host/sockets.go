package host

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	socketsPrefix = "embedsidecar-plugin-"
	// socketsRoom is the longest allowed path of the folder. A Unix socket's path has at most 108 bytes, and go-plugin
	// adds two names of up to 24 bytes.
	socketsRoom = 108 - 1 - 50
	// sweepAge protects a folder that another process has made but not locked yet.
	sweepAge = time.Minute
)

// sockets is the folder of a host's sockets. It is locked while the host lives, which distinguishes it from the folders
// of killed hosts, also across containers.
type sockets struct {
	dir  string
	lock *os.File
}

// makeSockets makes and locks a folder inside temp, and removes the folders of killed hosts.
func makeSockets(temp string) (*sockets, error) {
	temp = cmp.Or(temp, os.TempDir())
	sweepSockets(temp)
	dir, err := os.MkdirTemp(temp, socketsPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the plugin's socket: %w", err)
	}
	if len(dir) > socketsRoom {
		_ = os.Remove(dir)
		return nil, fmt.Errorf("%s is too long a name for a folder of Unix sockets (%d bytes of %d): name a shorter temporary folder", dir, len(dir), socketsRoom)
	}
	lock, err := lockDir(dir)
	if err != nil {
		_ = os.Remove(dir)
		return nil, fmt.Errorf("lock the folder for the plugin's socket: %w", err)
	}
	return &sockets{dir: dir, lock: lock}, nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// remove removes the folder and releases its lock.
func (s *sockets) remove() error {
	err := os.RemoveAll(s.dir)
	_ = s.lock.Close()
	return err
}

// sweepSockets removes this user's folders that no host has locked. It ignores errors: the next sweep retries.
func sweepSockets(temp string) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), socketsPrefix) {
			continue
		}
		dir := filepath.Join(temp, entry.Name())
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAge {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() {
			continue
		}
		if lock, err := lockDir(dir); err == nil {
			killStrays(dir)
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}
