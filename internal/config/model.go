package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// ModelSettings are a model's settings for its plugin, as its manifest names them. A plugin gets them as variables.
// Settings that change vectors change the model's fingerprint.
type ModelSettings struct {
	// Values are keyed by the plugin's variable without EMBEDSIDECAR_PLUGIN_.
	Values map[string]string
	// From maps variables of the plugin to those of our environment with their values: keys.
	From map[string]string
}

// String lists the settings without their values: a proxy's address may contain a password.
func (m ModelSettings) String() string { return strings.Join(slices.Sorted(maps.Keys(m.Values)), ",") }

// GoString hides in %#v what String hides.
func (m ModelSettings) GoString() string { return "config.ModelSettings{" + m.String() + "}" }

// Dims is the number of dimensions to keep; 0: all, or what the plugin's own setting says.
func (m ModelSettings) Dims() int { return whole(m.Values["DIMS"]) }

// told is a plugin setting of a model in a file: the plugin may be named only further down.
type told struct {
	name   string
	values []string
}

// settle sets the plugin of a model without one, and applies the plugin's settings. It reports mistakes to fail, by
// setting.
func (m *Model) settle(usual string, list []told, env *environ, fail func(name string, err error)) {
	says := func(name string) bool {
		return slices.ContainsFunc(list, func(t told) bool { return t.name == name })
	}
	for _, of := range manifest.All() {
		if m.Plugin == "" && says(of.ChosenBy) {
			m.Plugin = of.Name
		}
	}
	m.Plugin = cmp.Or(m.Plugin, usual)
	// A plugin without a manifest may replace one with its own settings.
	of, free := manifest.For(m.Plugin), manifest.Of(m.Plugin) == nil
	for _, other := range manifest.All() {
		if free && slices.ContainsFunc(other.Governs, says) {
			of, free = other, false
		}
	}
	for _, t := range list {
		setting, by := of.Setting(t.name), of
		if setting == nil {
			by = manifest.All()[slices.IndexFunc(manifest.All(),
				func(m *manifest.Manifest) bool { return m.Setting(t.name) != nil })]
			setting = by.Setting(t.name)
		}
		err := fmt.Errorf("it belongs to models of the plugin %s, not %s", by.Name, of.Name)
		if by == of || free {
			err = m.Settings.put(setting, t.values)
		}
		if err != nil {
			fail(t.name, err)
		}
	}
	if of.Key == nil || m.Settings.From[of.Key.Variable] == "" {
		return
	}
	name := m.Settings.From[of.Key.Variable]
	switch {
	case says(of.Key.File):
		fail(of.Key.Env, fmt.Errorf("it excludes %s: give one of them", of.Key.File))
	case env.vars[name] == "":
		fail(of.Key.Env, fmt.Errorf("the environment variable %s is not set", name))
	}
}

// put sets a value, or the items of a list, for the plugin.
func (m *ModelSettings) put(s *manifest.Setting, values []string) error {
	if m.Values == nil {
		m.Values, m.From = map[string]string{}, map[string]string{}
	}
	switch s.Type { //nolint:exhaustive // the others are single values
	case manifest.Variable:
		if !isVariable(values[0]) {
			return errors.New("expected the name of a variable: the key itself must not be in this file")
		}
		m.From[s.Variable] = values[0]
		return nil
	case manifest.List:
		for i, item := range values {
			if item == "" || strings.ContainsAny(item, ", \t\r\n\x00") {
				return &itemError{i, errors.New("expected one value without white space and commas")}
			}
		}
	}
	value, err := settingValue(s, strings.Join(values, "\n"))
	if err == nil {
		m.Values[s.Variable] = value
	}
	return err
}

// settingValue converts a value to the plugin's form.
func settingValue(s *manifest.Setting, v string) (string, error) {
	if strings.ContainsRune(v, 0) {
		return "", errors.New("a value cannot hold a NUL byte")
	}
	switch s.Type {
	case manifest.Number:
		n, err := parseInt(v, 1, s.Most)
		return strconv.Itoa(n), err
	case manifest.Choice:
		return oneOf(v, s.Choices...)
	case manifest.Bool:
		on, err := parseBool(v)
		return strconv.FormatBool(on), err
	case manifest.Words:
		return v, when(len(v) > s.Most, "expected at most %d bytes, not %d", s.Most, len(v))
	case manifest.File:
		if v != "" {
			return absolute(v), nil
		}
	default:
	}
	return v, when(v == "", "expected a text that is not empty")
}

// says reports whether one of a manifest's settings is set.
func (m *ModelSettings) says(of *manifest.Manifest, settings ...string) bool {
	return slices.ContainsFunc(settings, func(name string) bool {
		variable := of.VariableOf(name)
		return m.Values[variable] != "" || m.From[variable] != ""
	})
}

// serving returns the manifest of the plugin whose own settings the model has; without such settings, that of the
// model's plugin.
func (m *Model) serving(plugin string) *manifest.Manifest {
	for _, of := range manifest.All() {
		own := func(name string) bool { return strings.HasPrefix(name, of.Prefix) }
		if m != nil && of.Prefix != "" && (slices.ContainsFunc(slices.Collect(maps.Keys(m.Settings.Values)), own) ||
			slices.ContainsFunc(slices.Collect(maps.Keys(m.Settings.From)), own)) {
			return of
		}
	}
	return manifest.For(plugin)
}

// into adds the settings to the plugin's environment: they take precedence over variables of the same name.
func (m *ModelSettings) into(env, vars map[string]string) {
	for _, of := range manifest.All() {
		if of.Key != nil && m.says(of, of.Key.File, of.Key.Env) {
			delete(env, pluginEnvPrefix+of.Key.Variable)
			delete(env, pluginEnvPrefix+of.VariableOf(of.Key.File))
		}
	}
	for name, value := range m.Values {
		env[pluginEnvPrefix+name] = value
	}
	for name, ours := range m.From {
		env[pluginEnvPrefix+name] = vars[ours]
	}
}

// If the plugin's own requests have a timeout, a call may take as long as one of them, with time for a retry and the
// answer. The default is enough for short timeouts.
const (
	usualCall   = 30 * time.Second
	beyondCall  = 15 * time.Second
	longestCall = time.Hour
)

// requestTimeout is the limit of a call under a plugin's settings; 0: the default. It ignores invalid settings, which
// the plugin reports.
func requestTimeout(env map[string]string) time.Duration {
	for _, of := range manifest.All() {
		timeout, err := time.ParseDuration(env[pluginEnvPrefix+of.VariableOf(of.CallTimeout)])
		if err == nil && timeout <= longestCall && timeout+beyondCall > usualCall {
			return timeout + beyondCall
		}
	}
	return 0
}

// keys returns the API keys in this configuration.
func (c *Config) keys() []string {
	var keys []string
	for _, of := range manifest.All() {
		if of.Key != nil {
			keys = append(keys, c.env.vars[pluginEnvPrefix+of.Key.Variable])
		}
	}
	for _, m := range c.Models {
		for _, ours := range m.Settings.From {
			keys = append(keys, c.env.vars[ours])
		}
	}
	return keys
}
