package model

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/embedsidecar/embedsidecar/internal/base/owned"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// FindLibrary returns the shared library of ONNX Runtime: the given path, which may be its folder, or the first one
// found beside the program (lib/, ../lib, ../../lib) or in /usr/lib/embedsidecar. The error names every searched
// folder.
func FindLibrary(given, program string) (string, error) {
	if given != "" {
		info, err := os.Stat(given)
		if err != nil {
			return "", fmt.Errorf("find ONNX Runtime: %w", err)
		}
		if !info.IsDir() {
			return filepath.Abs(given)
		}
		if path := libraryIn(given); path != "" {
			return filepath.Abs(path)
		}
		return "", fmt.Errorf("find ONNX Runtime: no %s in %s", libraryPattern(), given)
	}
	folders := []string{"/usr/lib/embedsidecar"}
	if program != "" {
		beside := filepath.Dir(program)
		folders = []string{
			filepath.Join(beside, "lib"), filepath.Join(beside, "../lib"), filepath.Join(beside, "../../lib"),
			folders[0],
		}
	}
	for _, folder := range folders {
		if path := libraryIn(folder); path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("find ONNX Runtime: no %s in %s; run tools/fetch-onnxruntime.sh and set EMBEDSIDECAR_PLUGIN_ONNXRUNTIME to what it prints: %w",
		libraryPattern(), strings.Join(folders, ", "), fs.ErrNotExist)
}

func libraryPattern() string {
	if runtime.GOOS == "darwin" {
		return "libonnxruntime*.dylib"
	}
	return "libonnxruntime.so*"
}

// libraryIn returns the library in a folder: the one without a version in its name, or else the last by name.
func libraryIn(folder string) string {
	found, err := filepath.Glob(filepath.Join(folder, libraryPattern()))
	if err != nil || len(found) == 0 {
		return ""
	}
	for _, plain := range []string{"libonnxruntime.so", "libonnxruntime.dylib"} {
		if path := filepath.Join(folder, plain); slices.Contains(found, path) {
			return path
		}
	}
	return found[len(found)-1]
}

// library is the process's ONNX Runtime. It can neither be loaded twice nor replaced.
var library struct {
	mu   sync.Mutex
	path string // "" until loaded
}

// loadLibrary loads the library, unless it is loaded already.
func loadLibrary(path string) error {
	library.mu.Lock()
	defer library.mu.Unlock()
	if library.path != "" {
		if library.path != path {
			return fmt.Errorf("load ONNX Runtime %s: the process has loaded %s already", path, library.path)
		}
		return nil
	}
	if err := owned.Check(path); err != nil { // loading it runs its code
		return fmt.Errorf("load ONNX Runtime: %w", err)
	}
	if err := checkVersion(path); err != nil {
		return fmt.Errorf("load ONNX Runtime %s: %w", path, err)
	}
	ort.SetSharedLibraryPath(path)
	// Its errors are returned; suppress its further output.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return fmt.Errorf("load ONNX Runtime %s: %w", path, err)
	}
	library.path = path
	// The library must not send telemetry.
	return wrap.Errorf(ort.DisableTelemetry(), "load ONNX Runtime %s: switch telemetry off", path)
}
