package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// TestTrust_NamesOfTheDatabaseAreNoPaths: paths from the database are used only if this configuration has them.
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
		{"anything", "any", true}, // a name: searched in the plugin folder
		{"/opt/mine", "", true},
		{"/opt/pinned", "", true},
		{"./near", "./weights", true},
		{"fake", "/models/one", true},
		{"remote", "org/name", true}, // not a path: nothing is read
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

// TestTrust_AKeyGoesToThePluginThatItsEntryNames: a row of the database may name another plugin, and a folder may hold
// several.
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
`, "PROVIDER_KEY=sk-canary-one", "MY_KEY=sk-canary-two", "EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY=sk-canary-three",
		"EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY_FILE=/sk-canary-four")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		plugin, model string
		key           string // what its environment has; "": not even the canary
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

// TestTrust_VariablesOfOnePluginAreForItAlone: variables with a plugin's name as prefix go only to that plugin, and a
// plugin gets no secret without that prefix.
func TestTrust_VariablesOfOnePluginAreForItAlone(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	for _, name := range []string{"toy", "toy-box", "acme"} {
		if err := os.WriteFile(filepath.Join(dir, "embedsidecar-"+name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	variables := map[string]string{ // and who gets them
		"TOY_API_KEY": "toy", "TOY_REGION": "toy", "TOY_BOX_REGION": "toy-box", "TOY_BOX_TOKEN_FILE": "toy-box",
		"ACME_COLOUR": "acme", "REMOTE_TIMEOUT": "remote acme",
		"REMOTE_API_KEY": "remote", "REMOTE_TLS_KEY_FILE": "remote", "REMOTE_PROXY": "remote",
		"REGION": "toy toy-box acme remote", "MAX_TOKENS": "toy toy-box acme remote", "URL": "toy toy-box acme remote",
		"API_KEY": "", "ACCESS_TOKEN": "", "SECRET_FILE": "", "LISTED_KEY": "acme", "SERVER": "", "BROKEN_SERVER": "",
	}
	values := map[string]string{
		"REMOTE_PROXY": "http://me:word@127.0.0.1:3128", "SERVER": "https://me:word@127.0.0.1",
		"BROKEN_SERVER": "https://me:w%rd@127.0.0.1", "URL": "https://127.0.0.1/a",
	}
	var environ []string
	for name := range variables {
		environ = append(environ, pluginEnvPrefix+name+"="+values[name]+"v")
	}
	cfg, err := loadFile(t, `
plugins: {dir: `+dir+`, catalog: [{name: acme, env: [EMBEDSIDECAR_PLUGIN_LISTED_KEY]}]}
models: [{name: served, plugin: acme, dialect: openai}]
`, environ...)
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range []string{"toy", "toy-box", "acme", "remote", dir + "/embedsidecar-toy"} {
		model := map[bool]string{true: "served", false: "m"}[plugin == "acme"]
		e, err := cfg.Embedder(find, plugin, model)
		if err != nil {
			t.Fatal(err)
		}
		for name, forWhom := range variables {
			want := slices.Contains(strings.Fields(forWhom), pluginName(plugin))
			if _, got := e.Env[pluginEnvPrefix+name]; got != want {
				t.Errorf("%s gets %s: %t, want %t", plugin, name, got, want)
			}
		}
	}
}

// TestTrust_NobodyElseChoosesWhatIsRun: a program or library that every user of the machine can write or replace is not
// used, and neither is such a catalog, or one that its group can write. A configuration or database URL file like that
// causes a warning.
func TestTrust_NobodyElseChoosesWhatIsRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "plugins")
	file, list := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "catalog.yaml")
	program, library := filepath.Join(folder, "embedsidecar-toy"), filepath.Join(folder, "libtoy.so")
	address := filepath.Join(dir, "url")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		file: "version: 1\n", list: "version: 1\nplugins: []\n",
		program: "#!/bin/sh\n", library: "", address: "postgres://localhost/db",
	} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	load := func(flag, path string) error {
		source := Source{Flags: map[string][]string{flag: {path}}}
		_, warnings, err := Load(source)
		if _, again, _ := Reload(source, path); !slices.Equal(again, warnings) {
			t.Errorf("read again, there are the warnings %q, not %q", again, warnings)
		}
		if err == nil && len(warnings) > 0 {
			err = errors.New(strings.Join(warnings, ""))
		}
		return err
	}
	uses := func() []error {
		_, catalogue := ReadCatalogue(list)
		_, plugin := Finder{}.Plugin("toy", folder)
		_, loaded := Finder{}.Library(&manifest.Library{Name: "libtoy"}, library)
		return []error{load("config", file), catalogue, plugin, loaded, load("database-url-file", address)}
	}
	const another = 12345
	for _, tt := range []struct {
		path    string
		mode    os.FileMode
		owner   int // 0: the user of the test
		refused []int
	}{
		{file, 0o775, 0, nil},
		{file, 0o777, 0, []int{0}},
		{file, 0o602, 0, []int{0}},
		{address, 0o602, 0, []int{4}},
		{list, 0o777, 0, []int{1}},
		{list, 0o664, 0, []int{1}},
		{list, 0o644, 0, nil},
		{program, 0o777, 0, []int{2}},
		{program, 0o755, another, nil},
		{library, 0o777, 0, []int{3}},
		{folder, 0o777, 0, []int{2, 3}},
		{folder, 0o777 | os.ModeSticky, 0, nil},
		{folder, 0o777 | os.ModeSticky, another, []int{2, 3}},
		{dir, 0o777, 0, []int{0, 1, 2, 3, 4}},
		{dir, 0o777 | os.ModeSticky, 0, nil},
		{dir, 0o777 | os.ModeSticky, another, []int{0, 1, 2, 3, 4}},
	} {
		if tt.owner != 0 && os.Geteuid() != 0 {
			continue
		}
		was, err := os.Stat(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		if tt.owner != 0 {
			if err := os.Chown(tt.path, tt.owner, -1); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(tt.path, tt.mode); err != nil {
			t.Fatal(err)
		}
		for i, err := range uses() {
			if refused := err != nil && (strings.Contains(err.Error(), "every user of this machine") ||
				strings.Contains(err.Error(), "users other than its owner")); refused != slices.Contains(tt.refused, i) || !refused && err != nil {
				t.Errorf("%s with mode %s: use %d: %v", tt.path, tt.mode, i, err)
			}
		}
		if err := errors.Join(os.Chown(tt.path, os.Geteuid(), -1), os.Chmod(tt.path, was.Mode())); err != nil {
			t.Fatal(err)
		}
	}
}
