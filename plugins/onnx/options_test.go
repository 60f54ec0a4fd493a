package main

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// TestManifest_NamesWhatIsRead: every configurable setting reaches the plugin under the name that it reads.
func TestManifest_NamesWhatIsRead(t *testing.T) {
	asked := map[string]bool{}
	e := &embedder{lookup: func(name string) (string, bool) {
		asked[name] = true
		return "1", name == modelKey
	}}
	_, _ = e.options() // here is no library
	of := manifest.Of("onnx")
	names := []string{of.Library.Variable, "MODEL_SHA256"}
	for _, s := range of.Settings {
		names = append(names, s.Variable)
	}
	for _, name := range names {
		if !asked["EMBEDSIDECAR_PLUGIN_"+name] {
			t.Errorf("the plugin does not read %s", name)
		}
	}
}
