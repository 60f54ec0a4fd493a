package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1024": 1024, "64MiB": 64 << 20, "1.5GiB": 3 << 29, "100kB": 100000,
		"2 KiB": 2048, "1MB": 1e6, "1025B": 1025,
	} {
		if got, err := parseSize(&Setting{Low: "1KiB", High: "1TiB"}, in); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "MiB", "x", "-1MiB", "1MiBB", "NaN", "InfGiB", "0x10", "1_000", "1023", "2TiB",
		"1e400MiB",
	} {
		if got, err := parseSize(&Setting{Low: "1KiB", High: "1TiB"}, in); err == nil {
			t.Errorf("parseSize(%q) = %d", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute,
		"500ms": time.Second / 2, "0s": 0,
	} {
		if got, err := parseDuration(&Setting{Low: "0s", High: "24h"}, in); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %s, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"30": "no unit", "-1s": "from 0s to 1h", "2h": "from 0s to 1h",
		"soon": "expected a duration",
	} {
		if _, err := parseDuration(&Setting{Low: "0s", High: "1h"}, in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDuration(%q): %v, want %q", in, err, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"5m": 5 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute,
		"20s": 20 * time.Second, "1m30s": 90 * time.Second, "0s": 0,
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

// Each setting is consistent: its field exists, and its type accepts its default.
func TestSettings(t *testing.T) {
	flags, paths := map[string]bool{}, map[string]bool{}
	for i := range Settings() {
		s := &Settings()[i]
		switch {
		case paths[s.Path], s.Flag != "" && flags[s.Flag]:
			t.Errorf("twice: %+v", s)
		case s.Usage == "", s.Flag != "" && (s.Group == "" || (s.Type != "bool") != (s.Placeholder != "")):
			t.Errorf("incomplete: %+v", s)
		case types[s.Type] == nil && itemTypes[s.Type] == nil:
			t.Errorf("%s: there is no type %q", s.Path, s.Type)
		case s.Excludes != "" && settingAt(s.Excludes) == nil:
			t.Errorf("%s excludes %q, which is no setting", s.Path, s.Excludes)
		case !strings.Contains(s.Usage, ". For "):
			t.Errorf("%s does not say who needs it", s.Path)
		}
		flags[s.Flag], paths[s.Path] = true, true
		c := Default()
		_ = s.text(c.owner(strings.Replace(s.Path, "[]", "[0]", 1))) // panics if the field does not exist
		if value := s.Default(); value != "" {
			if err := s.put(reflect.ValueOf(c).Elem(), value); err != nil {
				t.Errorf("%s: its default %q: %v", s.Path, value, err)
			} else if got := s.Value(c); got != value {
				t.Errorf("%s: default %q became %q", s.Path, value, got)
			}
		}
	}
	for _, flag := range PipelineFlags() {
		if flags[flag] {
			t.Errorf("--%s is a setting and a pipeline flag", flag)
		}
	}
}

func TestSettings_Values(t *testing.T) {
	good := map[string][]string{
		"slot.name": {"a", "a_1", strings.Repeat("a", 63)}, "publication.name": {"Docs Pub", "ä"}, "instance": {"docs-1"},
		"slot.on_lost":    {"stop", "reconcile"},
		"http.ops.listen": {":0", "127.0.0.1:7471", "[::1]:80", "localhost:1"}, "workers.count": {"auto", "1", "0"},
		"enabled":   {"true", "false", "1", "0"},
		"log.level": {"debug", "info", "warn", "error"}, "log.format": {"json", "text", "auto"},
		"log.output": {"stderr", "stdout"}, "workers.cache_bytes": {"64MiB"},
	}
	bad := map[string][]string{
		"slot.name": {"A", "a-b", "ä", strings.Repeat("a", 64)}, "publication.name": {strings.Repeat("ä", 32), "\xff"},
		"instance":     {"a b", "ä", strings.Repeat("a", 51)},
		"slot.on_lost": {"never"}, "http.ops.listen": {"7471", "host:http", "a b:1", ":99999"},
		"workers.count": {"-1", "1.5", "9999"},
		"enabled":       {"yes", ""},
		"log.level":     {"LOUD"}, "log.format": {"xml"}, "log.output": {"/var/log/x"}, "workers.cache_bytes": {"1"},
		"models[].sha256": {"12"}, "database.url": {"a\x00b"},
	}
	put := func(path, v string) error {
		c := Default()
		return settingAt(path).put(c.owner(strings.Replace(path, "[]", "[0]", 1)), v)
	}
	for path, values := range good {
		for _, v := range values {
			if err := put(path, v); err != nil {
				t.Errorf("%s %q: %v", path, v, err)
			}
		}
	}
	for path, values := range bad {
		for _, v := range values {
			if err := put(path, v); err == nil {
				t.Errorf("%s %q is taken", path, v)
			}
		}
	}
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "a", "EMPTY": "", "B": "${A}"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for in, want := range map[string]string{
		"": "", "x": "x", "${A}": "a", "-${A}${A}-": "-aa-", "${EMPTY}": "", "${EMPTY:-d}": "d", "${UNSET:-}": "",
		"${UNSET:-d:-e}": "d:-e",
		"$$":             "$", "$$$$": "$$", "$${A}": "${A}", "$5": "$5", "a$": "a$", "$A": "$A", "${B}": "${A}",
		"$$$${A}": "$${A}",
	} {
		if got, err := expand(in, lookup); err != nil || got != want {
			t.Errorf("expand(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"${UNSET}": "UNSET is not set", "${": "without }", "${1A}": "not a variable",
		"${}": "not a variable", "${A:?x}": "not a variable",
	} {
		if _, err := expand(in, lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expand(%q): %v, want %q", in, err, want)
		}
	}
}

func TestApplicationName(t *testing.T) {
	c := Default()
	c.Instance = instanceOf("höst name", 0)
	if got := c.ApplicationName(); got != "embedsidecar/hstname" {
		t.Error(got)
	}
	c.Instance = strings.Repeat("x", 100)
	if got := len(c.ApplicationName()); got != 63 {
		t.Error(got)
	}
	if got := instanceOf("\t", 0); got != "sidecar" {
		t.Error(got)
	}
	// Several sidecars of a host have different names, also with a long host name.
	c.Instance = instanceOf(strings.Repeat("h", 100), 4711)
	if got := c.ApplicationName(); len(got) != 63 || !strings.HasSuffix(got, "h-4711") {
		t.Error(got)
	}
}
