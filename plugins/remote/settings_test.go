package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
	"github.com/embedsidecar/embedsidecar/plugins/remote/remotetest"
)

// from makes an environment from names without their prefix.
func from(env map[string]string) func(string) string {
	return func(name string) string { return env[strings.TrimPrefix(name, prefix)] }
}

// TestManifest_NamesWhatIsRead: every configurable setting reaches the plugin under the name that it reads.
func TestManifest_NamesWhatIsRead(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	_, err := readSettings(func(name string) string {
		asked[name] = true
		return map[string]string{prefix + "DIALECT": "openai", prefix + "MODEL": "m", prefix + "API_KEY": key}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range manifest.Of("remote").Settings {
		if !asked["EMBEDSIDECAR_PLUGIN_"+s.Variable] {
			t.Errorf("the plugin does not read %s", s.Variable)
		}
	}
}

func TestManifest_KnowsTheRerankers(t *testing.T) {
	t.Parallel()
	for _, d := range dialect.All() {
		settings := map[string]string{strings.TrimPrefix(prefix, "EMBEDSIDECAR_PLUGIN_") + "DIALECT": d.Name}
		if got := manifest.Of("remote").Reranks(settings); got != d.Reranks {
			t.Errorf("%s: %t, want %t", d.Name, got, d.Reranks)
		}
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	t.Parallel()
	good := map[string]string{"DIALECT": "openai", "MODEL": "m", "API_KEY": key}
	if _, err := readSettings(from(good)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, value, want string }{
		{"DIALECT", "", "cohere, cohere-rerank, gemini, jina-rerank, ollama, openai, tei, tei-rerank, tei-sparse, voyage, voyage-rerank"},
		{"DIALECT", "openia", `unknown dialect "openia"`},
		{"MODEL", "", "the provider's name"},
		{"URL", "example.com", "expected https"},
		{"URL", "http://example.com/v1", "unencrypted"},
		{"URL", "https://169.254.169.254/", "metadata"},
		{"URL", "https://user:" + key + "@example.com", "contains a user"},
		{"URL", "https://a.example.com,https://a.example.com", "twice"},
		{"URL", "https://%zz" + key, "no URL"},
		{"DIMS", "-1", "from 0 to 16000"},
		{"DIMS", "x", "from 0 to 16000"},
		{"DIMS_BY", "cut", "needs dims"},
		{"DIMS_BY", "me", "provider, model, cut"},
		{"TRUNCATE", "middle", "end, start, error"},
		{"NORMALIZE", "yes", "true, false"},
		{"ENCODING", "hex", "base64, float"},
		{"CONCURRENCY", "0", "from 1"},
		{"TIMEOUT", "20", "20s"},
		{"TIMEOUT", "-1s", "20s"},
		{"BATCH_TEXTS", "0", "from 1"},
		{"BATCHES", "gemini", "need the dialect gemini"},
		{"API_KEY", "two words", "byte 3"},
		{"API_KEY", "a\nb", "byte 1"},
		{"API_KEY", strings.Repeat("k", 20_000), "at most"},
		{"API_KEY_FILE", "/some/file", "mutually exclusive"},
		{"API_KEY_HEADER", "a b", "not a header name"},
		{"ALLOW_ADDRESSES", "10.0.0.0/40", "neither"},
		{"ALLOW_HTTP", "si", "false, true"},
	} {
		env := maps.Clone(good)
		env[test.name] = test.value
		_, err := readSettings(from(env))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), prefix+test.name) &&
			test.name != "API_KEY_FILE" {
			t.Errorf("%s=%q: got %v, want %q", test.name, test.value, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), key) {
			t.Errorf("%s=%q: the message holds the key", test.name, test.value)
		}
	}
	if _, err := readSettings(from(map[string]string{"DIALECT": "tei"})); err == nil || !strings.Contains(err.Error(),
		"has no default") {
		t.Errorf("tei without a URL: %v", err)
	}
	sparse := map[string]string{"DIALECT": "tei-sparse", "URL": "http://127.0.0.1:8080", "DIMS": "30522"}
	if s, err := readSettings(from(sparse)); err != nil || s.options.Dims != 30522 || s.options.Normalize {
		t.Errorf("sparse: %+v, %v", s.options, err)
	}
	for name, test := range map[string][2]string{
		"DIMS": {"", "vocabulary"}, "DIMS_BY": {"cut", "as wide as"}, "NORMALIZE": {"true", "leave it out"},
	} {
		env := maps.Clone(sparse)
		env[name] = test[0]
		if _, err := readSettings(from(env)); err == nil || !strings.Contains(err.Error(), test[1]) ||
			!strings.Contains(err.Error(), prefix+name) {
			t.Errorf("sparse with %s=%q: %v", name, test[0], err)
		}
	}
	if _, err := readSettings(from(map[string]string{"DIALECT": "voyage", "MODEL": "m"})); err == nil ||
		!strings.Contains(err.Error(), prefix+"API_KEY_FILE") ||
		!strings.Contains(err.Error(), "requires a key") {
		t.Errorf("voyage without a key: %v", err)
	}
	_, err := readSettings(from(map[string]string{"DIMS": "x", "TIMEOUT": "y", "TRUNCATE": "z"}))
	if err == nil || strings.Count(err.Error(), prefix) < 4 {
		t.Errorf("not every mistake is named: %v", err)
	}
}

func TestSettingsThatAreMeant(t *testing.T) {
	t.Parallel()
	s, err := readSettings(from(map[string]string{
		"DIALECT": "tei", "URL": "http://10.0.0.1:8080 http://10.0.0.2:8080,\nhttp://10.0.0.3:8080", "ALLOW_HTTP": "true",
		"DIMS": "64", "DIMS_BY": "cut",
		"QUERY_PREFIX": "query: ", "BATCH_BYTES": "1000", "ALLOW_ADDRESSES": "fd00::/8, 169.254.1.1", "TIMEOUT": "3s",
		modelKey: "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	o := s.options
	if len(o.URLs) != 3 || o.Limits.Bytes != 1000 || o.Limits.Texts != 32 || o.Prefixes[1] != "query: " ||
		len(s.network.Allow) != 2 || o.Timeout != 3*time.Second || s.name != "tei" {
		t.Errorf("got %+v, network %+v, name %q", o, s.network, s.name)
	}
}

// TestTheKeyCanBeReplaced while the plugin runs.
func TestTheKeyCanBeReplaced(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	write := func(content string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	k := &keyFile{path: file}
	if _, err := k.read(); err == nil {
		t.Error("a file that is not there has a key")
	}
	now := time.Now()
	for i, content := range []string{" one \n", "two", "three"} {
		write(content, now.Add(time.Duration(i)*time.Second))
		if got, err := k.read(); err != nil || got != strings.TrimSpace(content) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	write(" \n", now.Add(time.Hour))
	if _, err := k.read(); err == nil {
		t.Error("an empty file has a key")
	}
}

// TestWhatIsWrongReachesTheUser: errors pass through the real process, with a helpful message without secrets.
func TestWhatIsWrongReachesTheUser(t *testing.T) {
	t.Parallel()
	echo := remotetest.Send(401, `{"error":{"message":"Incorrect API key provided: `+key+`","code":"invalid_api_key"}}`)
	url := serve(t, &remotetest.Server{Dialect: "openai", Dims: dims, Behave: func(w http.ResponseWriter, r *http.Request,
		_ *remotetest.Call,
	) bool {
		echo(w, r)
		return true
	}})
	for what, test := range map[string]struct {
		env  []string
		want string
	}{
		"wrong key":  {[]string{"DIALECT", "openai", "URL", url, "API_KEY", key}, "the key is missing, wrong"},
		"no dialect": {[]string{"URL", url}, "unknown dialect"},
		"no file":    {[]string{"DIALECT", "openai", "URL", url, "API_KEY_FILE", "/nowhere/key"}, "/nowhere/key"},
	} {
		h, _ := open(t, test.env...)
		_, err := h.Describe(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v, want %q", what, err, test.want)
		}
		if class, _ := embed.Classify(err); class != embed.Configuration {
			t.Errorf("%s: class %s", what, class)
		}
	}
}
