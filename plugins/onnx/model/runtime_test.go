package model_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/model"
	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

// A process can load one library and keeps it, so a test of another one runs in a process of its own: this program
// again, with these variables.
const (
	testLibrary   = "EMBEDSIDECAR_TEST_LIBRARY"
	testFolder    = "EMBEDSIDECAR_TEST_FOLDER"
	testPrecision = "EMBEDSIDECAR_TEST_PRECISION"
	testHideAMX   = "EMBEDSIDECAR_TEST_HIDE_AMX"
)

func TestMain(m *testing.M) {
	if library := os.Getenv(testLibrary); library != "" {
		if os.Getenv(testHideAMX) != "" {
			if err := onnxtest.HideAMX(); err != nil {
				fmt.Print(err)
				os.Exit(1)
			}
		}
		_, err := model.Open(context.Background(), model.Options{
			Folder: os.Getenv(testFolder), Library: library, Threads: 2, Precision: os.Getenv(testPrecision),
		})
		fmt.Print(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// openInProcess returns what Open says to a library, in a process of its own.
func openInProcess(t *testing.T, library string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program)
	command.Env = append(os.Environ(), testLibrary+"="+library, testFolder+"="+writeFolder(t, tiny.Files()))
	out, err := command.Output()
	if err != nil {
		t.Fatalf("run with library %s: %v\n%s", library, err, out)
	}
	return string(out)
}

func TestOpen_Library(t *testing.T) {
	if got := openInProcess(t, onnxtest.Library(t)); got != "<nil>" {
		t.Errorf("the right library: %s", got)
	}
	text := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	others := compile(t, `int f(void) { return 0; }`)
	if err := os.Chmod(others, 0o757); err != nil {
		t.Fatal(err)
	}
	for library, want := range map[string]string{
		others:                                   "every user of this machine may write " + others,
		filepath.Join(t.TempDir(), "missing.so"): "no such file",
		text:                                     "load ONNX Runtime " + text,
		compile(t, `int f(void) { return 0; }`):  "OrtGetApiBase",
		// An older library has its version, but not the interface asked for.
		compile(t, `
			static const void *api(unsigned v) { return 0; }
			static const char *version(void) { return "1.21.1"; }
			static struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {api, version};
			const void *OrtGetApiBase(void) { return &base; }`): "it is version 1.21.1, 1.24 or newer is needed",
	} {
		if got := openInProcess(t, library); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// compile makes a shared library. A C compiler is there: this package cannot be built without one.
func compile(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libonnxruntime.so")
	command := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-x", "c", "-o", path, "-")
	command.Stdin = strings.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return path
}

func TestOpen_OneLibraryInAProcess(t *testing.T) {
	open(t)
	_, err := model.Open(t.Context(), model.Options{
		Folder:  writeFolder(t, tiny.Files()),
		Library: "/another/libonnxruntime.so",
	})
	wantError(t, err, "has loaded", "already")
}

func TestFindLibrary(t *testing.T) {
	root := t.TempDir()
	touch := func(name string) string {
		onnxtest.WriteFiles(t, root, map[string]string{name: ""})
		return filepath.Join(root, name)
	}
	program := filepath.Join(root, "a/bin/plugins/embedsidecar-onnx")
	find := func(given string) string {
		t.Helper()
		path, err := model.FindLibrary(given, program)
		if err != nil {
			return err.Error()
		}
		return path
	}
	// Nothing there yet: the error names the folders and the way out, unless this machine has the sidecar installed.
	if got := find(""); !strings.HasPrefix(got, "/usr/lib/embedsidecar/") &&
		(!strings.Contains(got, filepath.Join(root, "a/lib")+", /usr/lib/embedsidecar") ||
			!strings.Contains(got, "fetch-onnxruntime.sh")) {
		t.Errorf("nothing there: got %q", got)
	}
	// Each of these is found before those above it.
	for _, name := range []string{
		"a/lib/libonnxruntime.so.1.24.1", "a/lib/libonnxruntime.so.1.30.0", "a/lib/libonnxruntime.so",
		"a/bin/lib/libonnxruntime.so.1.31.1", "a/bin/plugins/lib/libonnxruntime.so.1.31.1",
	} {
		if want := touch(name); find("") != want {
			t.Errorf("found %s, want %s", find(""), want)
		}
	}
	other := touch("other/libonnxruntime.so.1.31.1")
	for _, given := range []string{other, filepath.Dir(other)} {
		if got := find(given); got != other {
			t.Errorf("given %s: found %s", given, got)
		}
	}
	if got := find(filepath.Join(root, "a")); !strings.Contains(got, "no libonnxruntime") {
		t.Errorf("a folder without it: got %q", got)
	}
	if got := find(filepath.Join(root, "missing")); !strings.Contains(got, "no such file") {
		t.Errorf("a path that is not there: got %q", got)
	}
}
