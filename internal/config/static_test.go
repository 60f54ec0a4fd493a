package config

import (
	"os"
	"path/filepath"
	"testing"
)

// If no plugin, or a plugin for folders, is named, the folder's content determines the plugin.
func TestEmbedder_TheFolderTellsThePlugin(t *testing.T) {
	root := tree(t, "bin/embedsidecar", "bin/plugins/embedsidecar-static", "bin/plugins/embedsidecar-onnx",
		"bin/plugins/embedsidecar-toy", "-lib/libonnxruntime.so", "models/table/", "models/encoder/")
	config := `{"model_type": "model2vec"}`
	if err := os.WriteFile(filepath.Join(root, "models/table/config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Finder{Executable: filepath.Join(root, "bin/embedsidecar")}
	c := &Config{Plugins: Plugins{Default: "onnx"}, env: &environ{}}
	for _, test := range []struct{ plugin, model, want string }{
		{"", "table", "static"},
		{"onnx", "table", "static"},
		{"", filepath.Join(root, "models/table"), "static"},
		{"static", "table", "static"},
		{"", "encoder", "onnx"},
		{"toy", "table", "toy"},
	} {
		got, err := c.Embedder(f, test.plugin, test.model)
		if err != nil || got.Plugin != test.want || filepath.Base(got.PluginPath) != pluginPrefix+test.want {
			t.Errorf("plugin %q, model %q: got %q (%s), %v, want %q", test.plugin, test.model, got.Plugin, got.PluginPath, err,
				test.want)
		}
	}
}
