package failpoint

import (
	"runtime"
	"syscall"
)

// killSelf ends the process as kill -9 would. The calling thread does not come back from the system call.
func killSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }

// stopSelf stops the process until SIGCONT. The signal goes to the calling thread: if it went to the process, another
// thread might handle it, and this one could run past the failpoint before the process stops.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
}
