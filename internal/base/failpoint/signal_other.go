//go:build unix && !linux

package failpoint

import "syscall"

// killSelf ends the process as kill -9 would.
func killSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }

// stopSelf stops the process until SIGCONT.
func stopSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }
