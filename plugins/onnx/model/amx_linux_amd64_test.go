package model_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// hideAMX makes the kernel refuse the permission to use AMX, for this process and those that it starts: ONNX Runtime asks for it, and does
// without where it gets none.
func hideAMX() error {
	const askForPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
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
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// ONNX Runtime 1.24.1 computes some products of 8 bits wrongly on CPUs with AMX, and on no others. It is refused there, for models that
// have such products, and taken where the kernel hides AMX, and for models that models import has made.
func TestOpen_RefusesALibraryThatIsWrongOnThisCPU(t *testing.T) {
	cache := filepath.Dir(filepath.Dir(onnxtest.Model(t)))
	library := filepath.Join(cache, "onnxruntime-1.24.1", "libonnxruntime.so.1.24.1")
	if _, err := os.Stat(library); err != nil {
		t.Fatalf("%v: run tools/fetch-onnxruntime.sh 1.24.1", err)
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	made, err := imported(t, "bert", true)
	if err != nil {
		t.Fatal(err)
	}
	amx := regexp.MustCompile(`\bamx_int8\b`).Match(cpu)
	for name, c := range map[string]struct {
		folder  string
		hide    bool
		refused bool
	}{
		"24 columns":                          {short(t, 24, 0), false, amx},
		"24 columns, AMX hidden":              {short(t, 24, 0), true, false},
		"72 columns, AMX hidden":              {short(t, 72, 0), true, false},
		"72 columns, which two threads share": {short(t, 72, 0), false, amx},
		"32 columns":                          {short(t, 32, 0), false, false},
		"made by models import":               {made, false, false},
	} {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), program)
		command.Env = append(os.Environ(), testLibrary+"="+library, testFolder+"="+c.folder, testPrecision+"=int8")
		if c.hide {
			command.Env = append(command.Env, testHideAMX+"=yes")
		}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if refused := strings.Contains(string(out), "ONNX Runtime 1.24.1 computes wrongly on this CPU"); refused != c.refused || !refused && string(out) != "<nil>" {
			t.Errorf("%s, AMX here %t: got %s, refused want %t", name, amx, out, c.refused)
		}
	}
}
