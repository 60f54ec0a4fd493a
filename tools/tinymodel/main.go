// Command tinymodel writes a model that is made in no time, for a look at whether the plugin onnx and its library work
// at all: where a processor is emulated, the default model takes minutes.
//
//	go run ./tools/tinymodel FOLDER
package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/onnx/onnxtest"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tinymodel:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	files := onnxtest.Letters(384, 1).Files()
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	files["SHA256SUMS"] = sums.String()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for the user of a container
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	return nil
}
