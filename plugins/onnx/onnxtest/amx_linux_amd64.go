package onnxtest

import (
	"os"
	"regexp"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	askForPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
	tiles            = 18     // XFEATURE_XTILEDATA
)

// AMX reports whether this process may use the 8-bit AMX instructions: the CPU has them, and the kernel permits it.
func AMX() bool {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !regexp.MustCompile(`\bamx_int8\b`).Match(cpu) {
		return false
	}
	_, _, errno := unix.Syscall(unix.SYS_ARCH_PRCTL, askForPermission, tiles, 0)
	return errno == 0
}

// HideAMX makes the kernel refuse AMX for this process and its children. ONNX Runtime asks for permission, and does not
// use AMX without it.
func HideAMX() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_ARCH_PRCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // its first argument
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: askForPermission, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}
