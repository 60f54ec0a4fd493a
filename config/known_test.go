package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrust_NamesOfTheDatabaseAreNoPaths: paths are run and read if this configuration has them itself.
func TestTrust_NamesOfTheDatabaseAreNoPaths(t *testing.T) {
	t.Parallel()
	cfg, err := loadFile(t, `
plugins:
  default: /opt/mine
  catalog:
    - {name: pinned, path: /opt/pinned}
models:
  - {name: folder, plugin: fake, path: /models/one}
  - {name: served, dialect: tei, url: "http://127.0.0.1:8080", model: org/name}
pipelines:
  - {table: docs, columns: [a], plugin: ./near, model: ./weights, into: {column: e}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		plugin, model string
		known         bool
	}{
		{"", "", true},
		{"onnx", "all-MiniLM-L6-v2", true},
		{"anything", "any", true}, // looked for in the folder of plugins
		{"/opt/mine", "", true},
		{"/opt/pinned", "", true},
		{"./near", "./weights", true},
		{"fake", "/models/one", true},
		{"remote", "org/name", true}, // no path: nothing is read by it
		{"/tmp/evil", "", false},
		{"../evil", "", false},
		{"..", "", false},
		{"onnx", "/tmp/evil", false},
		{"fake", "../../evil", false},
	} {
		if err := cfg.Known(tt.plugin, tt.model); (err == nil) != tt.known {
			t.Errorf("plugin %q, model %q: %v", tt.plugin, tt.model, err)
		}
	}
}

// TestTrust_AKeyGoesToThePluginThatItsEntryNames: a row of the database may name another.
func TestTrust_AKeyGoesToThePluginThatItsEntryNames(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	for _, name := range []string{"evil", "mine"} {
		if err := os.WriteFile(filepath.Join(dir, "embedsidecar-"+name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := loadFile(t, `
plugins: {dir: `+dir+`}
models:
  - {name: served, dialect: openai, url: "https://api.example.com/v1", model: m, api_key_env: PROVIDER_KEY}
  - {name: own, plugin: mine, api_key_env: MY_KEY}
`, "PROVIDER_KEY=sk-canary-one", "MY_KEY=sk-canary-two", "EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY=sk-canary-three", "EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY_FILE=/sk-canary-four")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		plugin, model string
		key           string // what its environment holds; "": no canary at all
		refused       bool
	}{
		{"remote", "served", "sk-canary-one", false},
		{"", "served", "sk-canary-one", false},
		{"mine", "own", "sk-canary-two", false},
		{"remote", "other", "sk-canary-three", false},
		{"evil", "other", "", false},
		{"evil", "served", "", true},
		{"evil", "own", "", true},
		{"remote", "own", "", true},
		{"mine", "served", "", true},
	} {
		e, err := cfg.Embedder(find, tt.plugin, tt.model)
		if (err != nil) != tt.refused {
			t.Errorf("%s, %s: %v", tt.plugin, tt.model, err)
		}
		all := fmt.Sprint(e.Env)
		if tt.key == "" && strings.Contains(all, "sk-canary") || !strings.Contains(all, tt.key) {
			t.Errorf("%s, %s: the environment holds %s, want %q", tt.plugin, tt.model, all, tt.key)
		}
		if tt.plugin == "mine" && strings.Contains(all, "sk-canary-three") {
			t.Errorf("the key of the plugin remote goes to another: %s", all)
		}
	}
}
