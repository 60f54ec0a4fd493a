package model_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// ONNX Runtime 1.24.1 computes some 8-bit products wrongly on CPUs with AMX, and all of them on CPUs without VNNI,
// where they overflow. It is refused there for models with such products. It is accepted if the kernel hides AMX, and
// on CPUs with VNNI for models made by models import.
func TestOpen_RefusesALibraryThatIsWrongOnThisCPU(t *testing.T) {
	cache := filepath.Dir(filepath.Dir(onnxtest.Model(t)))
	library := filepath.Join(cache, "onnxruntime-1.24.1", "libonnxruntime.so.1.24.1")
	if _, err := os.Stat(library); err != nil {
		t.Fatalf("%v: run tools/fetch-onnxruntime.sh 1.24.1", err)
	}
	made, err := imported(t, "bert", true)
	if err != nil {
		t.Fatal(err)
	}
	amx, overflows := onnxtest.AMX(), !vnni()
	for name, c := range map[string]struct {
		folder  string
		hide    bool
		refused bool
	}{
		"24 columns":                          {short(t, 24, 0), false, amx || overflows},
		"24 columns, AMX hidden":              {short(t, 24, 0), true, overflows},
		"72 columns, AMX hidden":              {short(t, 72, 0), true, overflows},
		"72 columns, which two threads share": {short(t, 72, 0), false, amx || overflows},
		"32 columns":                          {short(t, 32, 0), false, overflows},
		"made by models import":               {made, false, overflows},
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
		if refused := strings.Contains(string(out),
			"ONNX Runtime 1.24.1 computes wrongly on this CPU"); refused != c.refused || !refused && string(out) != "<nil>" {
			t.Errorf("%s, AMX here %t: got %s, refused want %t", name, amx, out, c.refused)
		}
	}
}

// vnni reports whether this CPU accumulates 8-bit products in 32 bits, without intermediate overflow.
func vnni() bool {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && regexp.MustCompile(`\bavx(512)?_vnni\b`).Match(cpu)
}
