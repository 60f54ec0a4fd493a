package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// remotePrefix is the prefix of the variables of the plugin remote.
const remotePrefix = pluginEnvPrefix + "REMOTE_"

// remoteFinder returns a Finder for a folder with the plugin.
func remoteFinder(t *testing.T) (Finder, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "embedsidecar-remote"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Finder{}, dir
}

// loadFile loads a file with an environment.
func loadFile(t *testing.T, content string, environ ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := Load(Source{Flags: map[string][]string{"config": {path}}, Environ: environ})
	return cfg, err
}

func TestRemoteModels(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	cfg, err := loadFile(t, `
plugins: {dir: `+dir+`}
models:
  - {name: small, dialect: openai, url: "https://api.example.com/v1", model: text-embedder-3, dims: 512, api_key_env: PROVIDER_KEY, query_prefix: "query: "}
  - name: many
    plugin: remote
    dialect: tei
    urls: ["http://10.0.0.1:8080", "http://10.0.0.2:8080"]
    allow_http: true
    batch: {texts: 64}
    tls: {ca_file: /etc/ca.pem}
pipelines:
  - {table: docs, columns: [a], model: small, into: {column: e}}
`, "PROVIDER_KEY=sk-canary-key", "EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY=another-canary",
		"EMBEDSIDECAR_PLUGIN_REMOTE_TIMEOUT=7s", "OTHER=x")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Pipelines[0].Plugin; got != "remote" {
		t.Errorf("the plugin of the pipeline is %q", got)
	}
	e, err := cfg.Embedder(find, cfg.Pipelines[0].Plugin, "small")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"MODEL": "small", "REMOTE_DIALECT": "openai", "REMOTE_URL": "https://api.example.com/v1",
		"REMOTE_MODEL": "text-embedder-3",
		"REMOTE_DIMS":  "512", "REMOTE_API_KEY": "sk-canary-key", "REMOTE_QUERY_PREFIX": "query: ", "REMOTE_TIMEOUT": "7s",
	}
	got := map[string]string{}
	for name, value := range e.Env {
		got[strings.TrimPrefix(name, pluginEnvPrefix)] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment of the plugin (-want +got):\n%s", diff)
	}
	many, err := cfg.Embedder(find, "", "many")
	if err != nil {
		t.Fatal(err)
	}
	if url := many.Env[remotePrefix+"URL"]; url != "http://10.0.0.1:8080\nhttp://10.0.0.2:8080" ||
		many.Env[remotePrefix+"TLS_CA_FILE"] != "/etc/ca.pem" || many.Env[remotePrefix+"BATCH_TEXTS"] != "64" {
		t.Errorf("got %v", many.Env)
	}
	if text := fmt.Sprintf("%v %+v %#v", *cfg, *cfg, *cfg); strings.Contains(text, "canary") {
		t.Error("the configuration prints a key")
	}
	if text := cfg.Redactor().Text("keys sk-canary-key and another-canary"); strings.Contains(text, "canary") {
		t.Errorf("the redactor knows not all keys: %s", text)
	}
}

func TestKeysAreForTheirPluginAlone(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	if err := os.WriteFile(filepath.Join(dir, "embedsidecar-other"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadFile(t, "plugins: {dir: "+dir+"}\n", "EMBEDSIDECAR_PLUGIN_REMOTE_API_KEY=canary",
		"EMBEDSIDECAR_PLUGIN_X=1")
	if err != nil {
		t.Fatal(err)
	}
	for plugin, want := range map[string]bool{"remote": true, "other": false} {
		e, err := cfg.Embedder(find, plugin, "m")
		if err != nil {
			t.Fatal(err)
		}
		if _, got := e.Env[remotePrefix+"API_KEY"]; got != want || e.Env[pluginEnvPrefix+"X"] != "1" {
			t.Errorf("%s: got %v", plugin, e.Env)
		}
	}
}

func TestRemoteModelsThatAreWrong(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		`{name: m, dialect: openai, api_key_env: NOT_SET}`:                   "the environment variable NOT_SET is not set",
		`{name: m, dialect: openai, api_key_env: HOME, api_key_file: /k}`:    "it excludes api_key_file",
		`{name: m, dialect: openai, api_key_env: "sk-canary 34"}`:            "the key itself must not be in this file",
		`{name: m, dialect: openai, api_key: sk-canary}`:                     `unknown key "api_key"`,
		`{name: m, plugin: onnx, dialect: openai}`:                           "it belongs to models of the plugin remote",
		`{name: m, dialect: tei, urls: ["http://10.0.0.1,http://10.0.0.2"]}`: "without white space and commas",
		`{name: m, dialect: tei, url: ""}`:                                   "not empty",
	} {
		_, err := loadFile(t, "models:\n  - "+model+"\n", "HOME=/root")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", model, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the message repeats the key: %v", model, err)
		}
	}
}

// TestRemoteSettingsAreDescribed: each setting has a line in the documentation.
func TestRemoteSettingsAreDescribed(t *testing.T) {
	t.Parallel()
	paper, err := os.ReadFile(filepath.FromSlash("../../docs/remote.md"))
	if err != nil {
		t.Fatal(err)
	}
	of := manifest.Of("remote")
	for _, s := range of.Settings {
		name := strings.TrimPrefix(s.Variable, of.Prefix)
		if !strings.Contains(string(paper), "`"+s.Name+"`") || !strings.Contains(string(paper), "`"+name+"`") {
			t.Errorf("docs/remote.md says nothing of %s, or of its variable %s", s.Name, name)
		}
	}
}

// A long request timeout raises the call timeout, or the plugin would be killed during the request.
func TestRemoteModels_CallsMayTakeAsLongAsRequests(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	for _, test := range []struct {
		plugin, model string
		environ       []string
		want          time.Duration
	}{
		{"", "", nil, 0},
		{"", "timeout: 15s", nil, 0},
		{"", "timeout: 24s", nil, 39 * time.Second},
		{"", "timeout: 5m", nil, 5*time.Minute + 15*time.Second},
		{"", "", []string{"EMBEDSIDECAR_PLUGIN_REMOTE_TIMEOUT=1m"}, 75 * time.Second},
		{"", "timeout: 1h", []string{"EMBEDSIDECAR_PLUGIN_REMOTE_TIMEOUT=1m"}, time.Hour + 15*time.Second},
		{"", "timeout: soon", nil, 0}, // the plugin reports it
		{"", "timeout: 48h", nil, 0},
		{"call_timeout: 2m", "timeout: 24s", nil, 2 * time.Minute},
		{"call_timeout: 10s", "timeout: 5m", nil, 10 * time.Second},
	} {
		file := "plugins: {dir: " + dir + ", catalog: [{name: remote, " + test.plugin +
			"}]}\nmodels: [{name: m, dialect: tei, url: \"http://127.0.0.1:1\", " + test.model + "}]\n"
		cfg, err := loadFile(t, strings.ReplaceAll(file, ", }", "}"), test.environ...)
		if err != nil {
			t.Fatal(err)
		}
		e, err := cfg.Embedder(find, "remote", "m")
		if err != nil || e.CallTimeout != test.want {
			t.Errorf("%q, %q, %q: %s, %v, want %s", test.plugin, test.model, test.environ, e.CallTimeout, err, test.want)
		}
	}
	for _, bad := range []string{"30", "0s", "2h", "soon"} {
		if _, err := loadFile(t, "plugins: {catalog: [{name: remote, call_timeout: "+bad+"}]}\n"); err == nil ||
			!strings.Contains(err.Error(), "call_timeout") {
			t.Errorf("call_timeout: %s: %v", bad, err)
		}
	}
}

// AWS credentials reach the plugin only for the dialects that sign with them.
func TestRemoteModels_SeeAWS(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	for dialect, want := range map[string]bool{"openai": false, "bedrock-titan": true, "bedrock-cohere": true} {
		cfg, err := loadFile(t, "plugins: {dir: "+dir+"}\nmodels: [{name: m, dialect: "+dialect+"}]\n",
			"AWS_ACCESS_KEY_ID=id", "HOME=/u", "AWS_OTHER=x")
		if err != nil {
			t.Fatal(err)
		}
		e, err := cfg.Embedder(find, "remote", "m")
		if err != nil {
			t.Fatal(err)
		}
		_, id := e.Env["AWS_ACCESS_KEY_ID"]
		_, home := e.Env["HOME"]
		if _, other := e.Env["AWS_OTHER"]; id != want || home != want || other {
			t.Errorf("%s: the plugin sees %v", dialect, e.Env)
		}
	}
}

// A plugin gets a server's additional free-form fields as JSON.
func TestRemoteModels_Fields(t *testing.T) {
	t.Parallel()
	find, dir := remoteFinder(t)
	file := `
plugins: {dir: ` + dir + `}
models:
  - name: m
    dialect: openai
    fields: {encoding_format: null, options: {num_ctx: 8192, stop: [a, "1", 2.5, true]}, user: "${WHO}"}
    query_fields:
      input_type: query
`
	cfg, err := loadFile(t, file, "WHO=us")
	if err != nil {
		t.Fatal(err)
	}
	e, err := cfg.Embedder(find, "", "m")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"FIELDS":       `{"encoding_format":null,"options":{"num_ctx":8192,"stop":["a","1",2.5,true]},"user":"us"}`,
		"QUERY_FIELDS": `{"input_type":"query"}`,
	} {
		if got := e.Env["EMBEDSIDECAR_PLUGIN_REMOTE_"+name]; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for fields, want := range map[string]string{
		"[a]": "expected keys and values, found a list", "a": "expected keys and values, found a single value",
	} {
		_, err := loadFile(t, strings.Replace(file, "{encoding_format", fields+"\n    # {", 1), "WHO=us")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}
}
