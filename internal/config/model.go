package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// addTo adds the settings of all manifests to the schema of a model. What one manifest alone has is taken at once;
// settle decides about the rest.
func (m *ModelSettings) addTo(s *schema) *told {
	later := &told{}
	for _, by := range manifest.All() {
		for _, setting := range by.Settings {
			f := s.field(setting.Name)
			before := f.value
			switch {
			case setting.Type == manifest.List:
				f.list = func(items []string) error { return m.setList(setting, items) }
			case setting.Type == manifest.Variable:
				f.value = func(v string) error { return m.setFrom(setting, v) }
			case by.Prefix != "" && !shared(setting.Name):
				f.value = func(v string) error {
					value, err := settingValue(setting, v)
					if err == nil {
						m.put(setting.Variable, value)
					}
					return err
				}
			default:
				f.value = func(v string) error {
					value, err := settingValue(setting, v)
					*later = append(*later, toldSetting{by, setting.Name, setting.Variable, value, err})
					if before != nil {
						return before(v)
					}
					return nil
				}
			}
		}
	}
	return later
}

// shared reports whether several manifests have a setting.
func shared(name string) bool {
	n := 0
	for _, m := range manifest.All() {
		if m.VariableOf(name) != "" {
			n++
		}
	}
	return n > 1
}

func (m *ModelSettings) setList(s manifest.Setting, items []string) error {
	for i, item := range items {
		if item == "" || strings.ContainsAny(item, ", \t\r\n\x00") {
			return &itemError{i, errors.New("expected one value without white space and commas")}
		}
	}
	value, err := settingValue(s, strings.Join(items, "\n"))
	if err == nil {
		m.put(s.Variable, value)
	}
	return err
}

func (m *ModelSettings) setFrom(s manifest.Setting, name string) error {
	if !isVariable(name) {
		return errors.New("expected the name of a variable: the key itself does not belong into this file")
	}
	if m.From == nil {
		m.From = map[string]string{}
	}
	m.From[s.Variable] = name
	return nil
}

// settingValue reads a value as the plugin gets it.
func settingValue(s manifest.Setting, v string) (string, error) {
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
		if len(v) > s.Most {
			return "", fmt.Errorf("expected at most %d bytes, not %d", s.Most, len(v))
		}
		return v, withoutNUL(v)
	default:
	}
	if v == "" || strings.ContainsRune(v, 0) {
		return "", errors.New("expected a text that is not empty")
	}
	if s.Type == manifest.File {
		return absolute(v), nil
	}
	return v, nil
}

// has reports whether the file says anything for the plugin of a manifest that has settings of its own.
func (m *ModelSettings) has(of *manifest.Manifest) bool {
	begins := func(values map[string]string) bool {
		for name := range values {
			if strings.HasPrefix(name, of.Prefix) {
				return true
			}
		}
		return false
	}
	return of.Prefix != "" && (begins(m.Values) || begins(m.From))
}

// says reports whether one of a manifest's settings is there.
func (m *ModelSettings) says(of *manifest.Manifest, settings ...string) bool {
	return slices.ContainsFunc(settings, func(name string) bool {
		variable := of.VariableOf(name)
		return m.Values[variable] != "" || m.From[variable] != ""
	})
}

// choosePlugin names the plugin of a model that names none.
func (m *Model) choosePlugin(usual string) {
	for _, of := range manifest.All() {
		if m.Plugin == "" && of.ChosenBy != "" && m.Settings.says(of, of.ChosenBy) {
			m.Plugin = of.Name
		}
	}
	if m.Plugin == "" {
		m.Plugin = usual
	}
}

// governing is the manifest in whose words the settings of the model are.
func (m *Model) governing() *manifest.Manifest {
	for _, of := range manifest.All() {
		if m.Plugin != of.Name && m.Settings.says(of, of.Governs...) {
			return of
		}
	}
	return manifest.For(m.Plugin)
}

// serving is the manifest of the plugin for whose servers, or whatever else it has of its own, the model says
// something; that of the model's plugin when it says nothing.
func (m *Model) serving(plugin string) *manifest.Manifest {
	if m != nil {
		for _, of := range manifest.All() {
			if m.Settings.has(of) {
				return of
			}
		}
	}
	return manifest.For(plugin)
}

// settle keeps the settings that belong to the model's plugin, and hands the mistakes in them to fail, by their names.
func (m *Model) settle(later *told, fail func(name string, err error)) {
	of := m.governing()
	for _, t := range *later {
		switch {
		case of.VariableOf(t.name) == "":
			fail(t.name, fmt.Errorf("it belongs to models of the plugin %s, not %s", t.by.Name, of.Name))
		case of.VariableOf(t.name) != t.variable: // what it is to another
		case t.err != nil:
			fail(t.name, t.err)
		default:
			m.Settings.put(t.variable, t.value)
		}
	}
}

// check returns the path of a mistake below the model, and what it is.
func (m *Model) check(env *environ) (path, mistake string) {
	for _, of := range manifest.All() {
		if !m.Settings.has(of) {
			continue
		}
		if manifest.Of(m.Plugin) != nil && m.Plugin != of.Name {
			for _, path := range of.NobodyElses {
				if m.Settings.Values[of.VariableOf(path)] != "" {
					return path, fmt.Sprintf("it belongs to models of the plugin %s, not %s", of.Name, m.Plugin)
				}
			}
		}
		if of.Key == nil || m.Settings.From[of.Key.Variable] == "" {
			continue
		}
		if m.Settings.says(of, of.Key.File) {
			return of.Key.Env, fmt.Sprintf("it excludes %s: give one of them", of.Key.File)
		}
		if name := m.Settings.From[of.Key.Variable]; env.vars[name] == "" {
			return of.Key.Env, fmt.Sprintf("the environment variable %s is not set", name)
		}
	}
	return "", ""
}

// into adds the settings to the environment of the plugin: they win over variables of the same name.
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

// A call of a plugin whose requests have a timeout may take as long as one of them, with time to spare for a second
// try and the answer. What is usual for plugins is enough for short ones.
const (
	usualCall  = 30 * time.Second
	beyondCall = 15 * time.Second
)

// requestTimeout is how long a call may take under the settings of a plugin; 0: as usual. The plugin itself judges
// them.
func requestTimeout(env map[string]string) time.Duration {
	for _, of := range manifest.All() {
		timeout, err := time.ParseDuration(env[pluginEnvPrefix+of.VariableOf(of.CallTimeout)])
		if err == nil && timeout <= maxCallTimeout && timeout+beyondCall > usualCall {
			return timeout + beyondCall
		}
	}
	return 0
}

// keys are the keys of servers that this configuration knows.
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
