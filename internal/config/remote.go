package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	remotePlugin = "remote"
	remotePrefix = pluginEnvPrefix + "REMOTE_"
	keySetting   = "API_KEY"
)

// Remote are the settings of a model that the plugin remote has served elsewhere: variables of the plugin, without
// their prefix. The plugin itself judges the values. KeyEnv names the variable of ours that holds the key.
type Remote struct {
	Settings map[string]string
	KeyEnv   string
}

// String names the settings and hides what they say: a proxy's address may hold a password.
func (r Remote) String() string { return strings.Join(slices.Sorted(maps.Keys(r.Settings)), ",") }

// GoString keeps %#v from showing what String hides.
func (r Remote) GoString() string { return "config.Remote{" + r.String() + "}" }

// remoteFields are where the settings stand in a model of the file, and what the plugin calls them.
func remoteFields() map[string]string {
	return map[string]string{
		"dialect": "DIALECT", "url": "URL", "model": "MODEL", "dims": "DIMS", "dims_by": "DIMS_BY",
		"document_prefix": "DOCUMENT_PREFIX", "query_prefix": "QUERY_PREFIX", "truncate": "TRUNCATE",
		"max_tokens": "MAX_TOKENS",
		"normalize":  "NORMALIZE", "encoding": "ENCODING", "concurrency": "CONCURRENCY", "timeout": "TIMEOUT",
		"patience":    "PATIENCE",
		"batch.texts": "BATCH_TEXTS", "batch.tokens": "BATCH_TOKENS", "batch.bytes": "BATCH_BYTES",
		"api_key_header": "API_KEY_HEADER", "proxy": "PROXY", "no_proxy": "NO_PROXY", "allow_http": "ALLOW_HTTP",
	}
}

// remoteFiles are the settings that name files.
func remoteFiles() map[string]string {
	return map[string]string{
		"api_key_file": "API_KEY_FILE", "probe_file": "PROBE_FILE",
		"tls.ca_file": "TLS_CA_FILE", "tls.cert_file": "TLS_CERT_FILE", "tls.key_file": "TLS_KEY_FILE",
	}
}

// remoteSchema adds the settings to a model of the file.
func remoteSchema(s *schema, r *Remote) {
	set := func(name string, change func(string) string) func(string) error {
		return func(v string) error {
			if v == "" || strings.ContainsRune(v, 0) {
				return errors.New("expected a text that is not empty")
			}
			if r.Settings == nil {
				r.Settings = map[string]string{}
			}
			r.Settings[name] = change(v)
			return nil
		}
	}
	for path, name := range remoteFields() {
		s.field(path).value = set(name, func(v string) string { return v })
	}
	for path, name := range remoteFiles() {
		s.field(path).value = set(name, absolute)
	}
	for path, name := range map[string]string{"urls": "URL", "allow_addresses": "ALLOW_ADDRESSES"} {
		s.field(path).list = func(items []string) error {
			for i, item := range items {
				if item == "" || strings.ContainsAny(item, ", \t\r\n\x00") {
					return &itemError{i, errors.New("expected one value without white space and commas")}
				}
			}
			return set(name, func(v string) string { return v })(strings.Join(items, "\n"))
		}
	}
	s.field("api_key_env").value = func(v string) error {
		if !isVariable(v) {
			return errors.New("expected the name of a variable: the key itself does not belong into this file")
		}
		r.KeyEnv = v
		return nil
	}
}

// set reports whether the file says anything of the kind.
func (r Remote) set() bool { return len(r.Settings) > 0 || r.KeyEnv != "" }

// elsewhere reports whether the file says where the model is served.
func (r Remote) elsewhere() bool {
	return r.KeyEnv != "" || r.Settings["DIALECT"] != "" || r.Settings["URL"] != ""
}

// check returns the path of a mistake below the model, and what it is.
func (r Remote) check(plugin string, env *environ) (path, mistake string) {
	if !r.set() {
		return "", ""
	}
	if plugin == "onnx" {
		for _, path := range []string{"dialect", "url", "api_key_file"} {
			if r.Settings[strings.ToUpper(path)] != "" {
				return path, "it belongs to models of the plugin remote, not onnx"
			}
		}
	}
	if r.KeyEnv == "" {
		return "", ""
	}
	if r.Settings["API_KEY_FILE"] != "" {
		return "api_key_env", "it excludes api_key_file: give one of them"
	}
	if env.vars[r.KeyEnv] == "" {
		return "api_key_env", fmt.Sprintf("the environment variable %s is not set", r.KeyEnv)
	}
	return "", ""
}

// into adds the settings to the environment of the plugin: they win over variables of the same name.
func (r Remote) into(env map[string]string, vars map[string]string) {
	if r.KeyEnv != "" || r.Settings["API_KEY_FILE"] != "" {
		delete(env, remotePrefix+keySetting)
		delete(env, remotePrefix+keySetting+"_FILE")
	}
	for name, value := range r.Settings {
		env[remotePrefix+name] = value
	}
	if r.KeyEnv != "" {
		env[remotePrefix+keySetting] = vars[r.KeyEnv]
	}
}

// A call of the plugin remote may take as long as one of its requests, with time to spare for a second try and the
// answer. What is usual for plugins is enough for short ones.
const (
	usualCall  = 30 * time.Second
	beyondCall = 15 * time.Second
)

// remoteCall is how long a call may take under the settings of the plugin remote; 0: as usual. The plugin itself
// judges them.
func remoteCall(env map[string]string) time.Duration {
	timeout, err := time.ParseDuration(env[remotePrefix+"TIMEOUT"])
	if err != nil || timeout > maxCallTimeout || timeout+beyondCall <= usualCall {
		return 0
	}
	return timeout + beyondCall
}

// keys are the keys of remote servers that this configuration knows.
func (c *Config) keys() []string {
	keys := []string{c.env.vars[remotePrefix+keySetting]}
	for _, m := range c.Models {
		if m.Remote.KeyEnv != "" {
			keys = append(keys, c.env.vars[m.Remote.KeyEnv])
		}
	}
	return keys
}
