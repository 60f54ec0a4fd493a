package model

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMinimum_IsWhatTheBindingAsksFor: a library has the interfaces of its own and all earlier versions, so the oldest
// usable one is that of the Go binding. The documentation names the same version.
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
