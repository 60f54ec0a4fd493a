package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMinimum_IsWhatTheBindingAsksFor: a library has the interface of its own version and of all before it, so the one
// that the Go binding is built for is the oldest that does; what is said of that names the same one.
func TestMinimum_IsWhatTheBindingAsksFor(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go")
	dir, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(strings.TrimSpace(string(dir)), "onnxruntime_c_api.h"): fmt.Sprintf("#define ORT_API_VERSION %d\n",
			minimumMinor),
		"../main.go":                          fmt.Sprintf("ONNX Runtime %d.%d or newer", minimumMajor, minimumMinor),
		"../../../tools/fetch-onnxruntime.sh": fmt.Sprintf("(%d.%d does, but", minimumMajor, minimumMinor),
	} {
		if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s does not have %q (%v)", file, want, err)
		}
	}
}
