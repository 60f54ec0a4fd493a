package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// tree makes files (with mode) and folders (names that end in a slash) in a new folder.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		mode := os.FileMode(0o755)
		if rest, ok := strings.CutPrefix(name, "-"); ok {
			name, mode = rest, 0o644
		}
		path := filepath.Join(root, name)
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "/") {
			if err := os.WriteFile(path, []byte("#!"), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestFinder_Plugin(t *testing.T) {
	root := tree(t, "bin/embedsidecar", "bin/plugins/embedsidecar-onnx", "-bin/plugins/embedsidecar-flat",
		"bin/plugins/embedsidecar-dir/", "other/embedsidecar-onnx", "own")
	f := Finder{Executable: filepath.Join(root, "bin/embedsidecar")}
	for _, test := range []struct{ name, dir, want string }{
		{"onnx", "", "bin/plugins/embedsidecar-onnx"},
		{"onnx", filepath.Join(root, "other"), "other/embedsidecar-onnx"},
		{filepath.Join(root, "own"), "", "own"},
		{filepath.Join(root, "own"), filepath.Join(root, "other"), "own"},
	} {
		if got, err := f.Plugin(test.name, test.dir); err != nil || got != filepath.Join(root, test.want) {
			t.Errorf("Plugin(%q, %q) = %q, %v, want %q", test.name, test.dir, got, err, test.want)
		}
	}
	for name, want := range map[string]string{"flat": "is not executable", "dir": "is not a file"} {
		if _, err := f.Plugin(name, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Plugin(%q): %v, want %q", name, err, want)
		}
	}
	_, err := f.Plugin("none", "")
	var missing *NotFoundError
	if !errors.As(err, &missing) {
		t.Fatalf("%v is no *NotFoundError", err)
	}
	want := []string{
		filepath.Join(root, "bin/plugins/embedsidecar-none"),
		"/usr/lib/embedsidecar/plugins/embedsidecar-none",
	}
	if diff := cmp.Diff(want, missing.Searched); diff != "" {
		t.Error(diff)
	}
	for _, want := range append(want, `plugin "none" not found`) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if !strings.Contains(missing.Hints()[0], "--plugin-dir") {
		t.Errorf("hints %q", missing.Hints())
	}
}

func TestFinder_Model(t *testing.T) {
	root := tree(t, "bin/embedsidecar", "bin/models/a/", "models/a/", "models/b/", "cache/embedsidecar/models/b/",
		"cache/embedsidecar/models/c/", "-models/file", "x/a/")
	f := NewFinder(filepath.Join(root, "bin/embedsidecar"), []string{"XDG_CACHE_HOME=" + filepath.Join(root, "cache")})
	for _, test := range []struct{ name, dir, want string }{
		{"a", "", "bin/models/a"},
		{"b", "", "models/b"},
		{"c", "", "cache/embedsidecar/models/c"},
		{"a", filepath.Join(root, "x"), "x/a"},
		{filepath.Join(root, "x/a"), "", "x/a"},
	} {
		if got, err := f.Model(test.name, test.dir); err != nil || got != filepath.Join(root, test.want) {
			t.Errorf("Model(%q, %q) = %q, %v, want %q", test.name, test.dir, got, err, test.want)
		}
	}
	_, err := f.Model("file", "")
	var missing *NotFoundError
	if !errors.As(err, &missing) || len(missing.Searched) != 4 || len(missing.Hints()) != 2 {
		t.Errorf("%v", err)
	}
}

func TestFinder_Library(t *testing.T) {
	library := manifest.Of("onnx").Library
	root := tree(t, "bin/embedsidecar", "-lib/libonnxruntime.so.1.9.0", "-lib/libonnxruntime.so.1.23.2",
		"-lib/libonnxruntime.so", "-own.so")
	f := Finder{Executable: filepath.Join(root, "bin/embedsidecar"), Cache: filepath.Join(root, "none")}
	if got, err := f.Library(library, ""); err != nil || filepath.Base(got) != "libonnxruntime.so.1.23.2" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := f.Library(library, filepath.Join(root, "own.so")); err != nil || filepath.Base(got) != "own.so" {
		t.Errorf("%q, %v", got, err)
	}
	var missing *NotFoundError
	if _, err := f.Library(library, root); !errors.As(err, &missing) {
		t.Error(err)
	}
	if _, err := (Finder{}).Library(library, ""); !errors.As(err, &missing) {
		t.Error(err)
	}
}

func TestNewFinder_Cache(t *testing.T) {
	for _, test := range []struct {
		environ []string
		want    string
	}{
		{[]string{"XDG_CACHE_HOME=/c", "HOME=/h"}, "/c/embedsidecar"},
		{[]string{"XDG_CACHE_HOME=relative", "HOME=/h"}, "/h/.cache/embedsidecar"},
		{[]string{"HOME=/h"}, "/h/.cache/embedsidecar"},
		{nil, ""},
	} {
		if got := NewFinder("/bin/x", test.environ).Cache; got != test.want {
			t.Errorf("%q: %q, want %q", test.environ, got, test.want)
		}
	}
}

func TestConfig_Embedder(t *testing.T) {
	root := tree(t, "bin/embedsidecar", "bin/plugins/embedsidecar-onnx", "bin/plugins/embedsidecar-fake",
		"bin/models/all-MiniLM-L6-v2/", "bin/models/big/", "-bin/lib/libonnxruntime.so", "own/embedsidecar-mine")
	find := Finder{Executable: filepath.Join(root, "bin/embedsidecar")}
	file := write(t, `
plugins: {catalog: [{name: onnx, sha256: `+strings.Repeat("c", 64)+`}, {name: mine, path: `+root+`/own/embedsidecar-mine, sha256: `+strings.Repeat("a", 64)+
		`, env: [OMP_NUM_THREADS, UNSET]}]}
models:
- {name: big, threads: 2, sha256: `+strings.Repeat("b", 64)+`}
- {name: cut, plugin: fake, path: `+root+
		`/bin/models/big, dims: 64, max_tokens: 100, pooling: last, normalize: false, truncate: left, precision: int8,
   provider: auto, document_prefix: "", query_prefix: "query: "}
- {name: else, plugin: mine, path: `+root+`/bin/models/big}
`)
	c, _, err := Load(Source{
		Flags: map[string][]string{
			"config": {file}, "threads": {"3"},
		},
		Environ: []string{
			"OMP_NUM_THREADS=7", "SECRET=x", "EMBEDSIDECAR_PLUGIN_COST=5ms", "EMBEDSIDECAR_PLUGIN_FAULT=nan",
			"EMBEDSIDECAR_PLUGIN_DIR=",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	base := map[string]string{"EMBEDSIDECAR_PLUGIN_COST": "5ms", "EMBEDSIDECAR_PLUGIN_FAULT": "nan"}
	with := func(more map[string]string) map[string]string {
		maps.Copy(more, base)
		return more
	}
	library := filepath.Join(root, "bin/lib/libonnxruntime.so")
	tests := []struct {
		plugin, model string
		want          Embedder
	}{
		{"", "", Embedder{
			Plugin: "onnx", PluginPath: root + "/bin/plugins/embedsidecar-onnx", PluginSHA256: strings.Repeat("c", 64),
			Model:     "all-MiniLM-L6-v2",
			ModelPath: root + "/bin/models/all-MiniLM-L6-v2", Threads: 3, Env: with(map[string]string{
				"EMBEDSIDECAR_PLUGIN_THREADS": "3",
				"EMBEDSIDECAR_PLUGIN_MODEL":   root + "/bin/models/all-MiniLM-L6-v2", "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME": library,
			}),
		}},
		{"", "big", Embedder{
			Plugin: "onnx", PluginPath: root + "/bin/plugins/embedsidecar-onnx", PluginSHA256: strings.Repeat("c", 64),
			Model:     "big",
			ModelPath: root + "/bin/models/big", ModelSHA256: strings.Repeat("b", 64), Threads: 2, Env: with(map[string]string{
				"EMBEDSIDECAR_PLUGIN_THREADS": "2", "EMBEDSIDECAR_PLUGIN_MODEL_SHA256": strings.Repeat("b", 64),
				"EMBEDSIDECAR_PLUGIN_MODEL": root + "/bin/models/big", "EMBEDSIDECAR_PLUGIN_ONNXRUNTIME": library,
			}),
		}},
		{"", "else", Embedder{
			Plugin: "mine", PluginPath: root + "/own/embedsidecar-mine", PluginSHA256: strings.Repeat("a", 64), Model: "else",
			ModelPath: root + "/bin/models/big", Threads: 3, Env: with(map[string]string{
				"EMBEDSIDECAR_PLUGIN_THREADS": "3", "OMP_NUM_THREADS": "7",
				"EMBEDSIDECAR_PLUGIN_MODEL": root + "/bin/models/big",
			}),
		}},
		{"", "cut", Embedder{
			Plugin: "fake", PluginPath: root + "/bin/plugins/embedsidecar-fake", Model: "cut",
			ModelPath: root + "/bin/models/big", Threads: 3,
			Env: with(map[string]string{
				"EMBEDSIDECAR_PLUGIN_THREADS": "3", "EMBEDSIDECAR_PLUGIN_MODEL": root + "/bin/models/big",
				"EMBEDSIDECAR_PLUGIN_DIMS": "64", "EMBEDSIDECAR_PLUGIN_MAX_TOKENS": "100", "EMBEDSIDECAR_PLUGIN_POOLING": "last",
				"EMBEDSIDECAR_PLUGIN_NORMALIZE": "false", "EMBEDSIDECAR_PLUGIN_TRUNCATE": "left",
				"EMBEDSIDECAR_PLUGIN_PRECISION": "int8",
				"EMBEDSIDECAR_PLUGIN_PROVIDER":  "auto", "EMBEDSIDECAR_PLUGIN_DOCUMENT_PREFIX": "",
				"EMBEDSIDECAR_PLUGIN_QUERY_PREFIX": "query: ",
			}),
		}},
		{"fake", "384", Embedder{
			Plugin: "fake", PluginPath: root + "/bin/plugins/embedsidecar-fake", Model: "384", Threads: 3,
			Env: with(map[string]string{"EMBEDSIDECAR_PLUGIN_THREADS": "3", "EMBEDSIDECAR_PLUGIN_MODEL": "384"}),
		}},
		{root + "/bin/plugins/embedsidecar-fake", "", Embedder{
			Plugin: "fake", PluginPath: root + "/bin/plugins/embedsidecar-fake", Threads: 3,
			Env: with(map[string]string{"EMBEDSIDECAR_PLUGIN_THREADS": "3"}),
		}},
	}
	for _, test := range tests {
		got, err := c.Embedder(find, test.plugin, test.model)
		if err != nil {
			t.Errorf("Embedder(%q, %q): %v", test.plugin, test.model, err)
		} else if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("Embedder(%q, %q) (-want +got):\n%s", test.plugin, test.model, diff)
		}
	}
	for _, test := range [][2]string{{"onnx", "nowhere"}, {"nowhere", ""}} {
		var missing *NotFoundError
		if _, err := c.Embedder(find, test[0], test[1]); !errors.As(err, &missing) {
			t.Errorf("Embedder(%q): %v", test, err)
		}
	}
	c.Libraries["onnxruntime"] = filepath.Join(root, "gone.so")
	if _, err := c.Embedder(find, "onnx", ""); err == nil || !strings.Contains(err.Error(), "gone.so") {
		t.Error(err)
	}
}

func TestFinder_DidYouMean(t *testing.T) {
	root := tree(t, "bin/embedsidecar", "bin/plugins/embedsidecar-onnx", "models/all-MiniLM-L6-v2/")
	f := NewFinder(filepath.Join(root, "bin/embedsidecar"), nil)
	_, plugin := f.Plugin("onx", "")
	_, model := f.Model("all-minilm-l6-v3", "")
	for want, err := range map[string]error{"did you mean onnx?": plugin, "did you mean all-MiniLM-L6-v2?": model} {
		var missing *NotFoundError
		if !errors.As(err, &missing) || missing.Hints()[0] != want {
			t.Errorf("%v, hints %q, want %q", err, missing.Hints(), want)
		}
	}
}

// A user beside a running sidecar often has not named its file: the error says so, or how a file names what is missing.
func TestEmbedder_SaysWhereElseAPluginMayBeNamed(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": `no configuration file was read: where the sidecar has one that names it, give the same with --config FILE or ` +
			"EMBEDSIDECAR_CONFIG",
		write(t, "slot: {name: x}"): "may say where its file lies: plugins: {catalog: [{name: toy, path: ...}]}",
	} {
		var environ []string
		if path != "" {
			environ = []string{"EMBEDSIDECAR_CONFIG=" + path}
		}
		c, _, err := Load(Source{Environ: environ})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Embedder(Finder{Executable: filepath.Join(t.TempDir(), "embedsidecar")}, "toy", "")
		missing, ok := errors.AsType[*NotFoundError](err)
		if !ok {
			t.Fatalf("%q: %v", path, err)
		}
		if hints := strings.Join(missing.Hints(), "\n"); !strings.Contains(hints, want) {
			t.Errorf("%q: the hints are\n%s\nwant\n%s", path, hints, want)
		}
	}
}
