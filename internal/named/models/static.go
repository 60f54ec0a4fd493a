package models

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// staticIn reports whether a folder is that of a static model, and in which of its folders table and tokenizer lie.
func staticIn(folder string) (in string, static bool) {
	m := manifest.ByContent(folder)
	if m == nil || !slices.Contains(m.Model.Encoders, staticModule) {
		return "", false
	}
	var modules []struct {
		Path string `json:"path"`
		Type string `json:"type"`
	}
	if readJSON(filepath.Join(folder, modulesFile), &modules) == nil && len(modules) > 0 &&
		strings.HasSuffix(modules[0].Type, staticModule) && filepath.IsLocal(modules[0].Path) {
		in = modules[0].Path
	}
	return path.Clean(in), true
}

const staticModule = "StaticEmbedding"

func isStatic(folder string) bool {
	_, static := staticIn(folder)
	return static
}

// tableOf is the file with the vectors of a static model; "" of others.
func tableOf(folder string) string {
	if in, static := staticIn(folder); static {
		return path.Join(in, weightsFile)
	}
	return ""
}

// filesOf are the files that a model in a folder must have.
func filesOf(folder string) []string {
	if in, static := staticIn(folder); static {
		return []string{path.Join(in, weightsFile), path.Join(in, tokenizerFile)}
	}
	return required
}
