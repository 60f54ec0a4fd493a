package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// Shown is a value of a configuration without passwords and keys.
type Shown struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default"
}

// Show returns the settings that were set, with their origins, or all settings including defaults.
func (c *Config) Show(all bool) []Shown {
	list := []Shown{}
	shown := *c.Written() // a copy, because access to a list element may make it
	shown.searches, shown.schemas = slices.Clone(shown.searches), slices.Clone(shown.schemas)
	c = &shown
	for i := range Settings() {
		s := &Settings()[i]
		if !strings.Contains(s.Path, "[]") {
			if value, from := s.Value(c), c.Origin(s.Path); all && value != "" || from != "default" && s.Type != "version" {
				list = append(list, Shown{s.Path, value, from})
			}
		}
	}
	for _, name := range []string{"databases", "models", "plugins.catalog", "pipelines"} {
		for i := range c.count(name) {
			for _, s := range partsOf(name) {
				path := strings.Replace(s.Path, "[]", index("", i), 1)
				value, from := s.text(c.owner(path)), c.partOrigin(path)
				if s.Secret {
					value = RedactDSN(value)
				}
				if all && value != "" && !s.fields(c.owner(path))[0].IsZero() || from != "default" {
					list = append(list, Shown{path, value, from})
				}
			}
			if name == "models" && len(c.Models[i].Settings.Values) > 0 {
				path := index(name, i)
				list = append(list, Shown{path + ".settings", c.Models[i].Settings.String(), c.Origin(path)})
			}
		}
	}
	return list
}

// partsOf returns the settings of a list element.
func partsOf(list string) (parts []*Setting) {
	for i := range Settings() {
		if s := &Settings()[i]; strings.HasPrefix(s.Path, list+"[].") {
			parts = append(parts, s)
		}
	}
	return parts
}

// partOrigin returns where a part of an element was set. Table, columns and destination may come from the one-line form
// of the whole element.
func (c *Config) partOrigin(path string) string {
	element, part, _ := strings.Cut(path, "].")
	if o, ok := c.origins[path]; ok || !slices.Contains([]string{"table", "columns", "into.column", "into.table"}, part) {
		return cmp.Or(o.place, "default")
	}
	s := settingAt(path)
	if s.text(c.owner(path)) == "" {
		return "default"
	}
	list, _, _ := strings.Cut(element, "[")
	return cmp.Or(c.origins[element+"]"].place, c.origins[list].place, "default")
}

// Changes returns the settings in which another configuration differs: those that can be applied while the program
// runs, lists as a whole, and those that need a restart.
func (c *Config) Changes(next *Config) (live, restart []string) {
	now, then := reflect.ValueOf(c).Elem(), reflect.ValueOf(next).Elem()
	for i := range Settings() {
		s := &Settings()[i]
		switch {
		case strings.Contains(s.Path, "[]") || s.Type == "version" || s.text(now) == s.text(then):
		case s.Restart:
			restart = append(restart, s.Path)
		default:
			live = append(live, s.Path)
		}
	}
	for _, list := range []struct {
		name   string
		differ bool
	}{
		{"models", !reflect.DeepEqual(c.Models, next.Models)},
		{"plugins.catalog", !reflect.DeepEqual(c.Plugins.Catalog, next.Plugins.Catalog)},
		{"pipelines", !reflect.DeepEqual(c.Pipelines, next.Pipelines) || !reflect.DeepEqual(c.Written().searches, next.Written().searches)},
	} {
		if list.differ {
			live = append(live, list.name)
		}
	}
	if !reflect.DeepEqual(c.Databases, next.Databases) {
		restart = append(restart, "databases")
	}
	return live, restart
}

// OnlyPipelines reports whether all changes are of pipelines and of what answers about them, and of nothing that
// running workers depend on.
func OnlyPipelines(changes []string) bool {
	return !slices.ContainsFunc(changes, func(path string) bool {
		return path != "pipelines" && path != "publication.column_lists" && !strings.HasPrefix(path, "http.admin.")
	})
}

// Keeping returns the configuration with the restart settings of the running one.
func (c *Config) Keeping(running *Config) *Config {
	kept := *c
	if c.written != nil {
		kept.written = c.written.Keeping(running)
	}
	kept.Databases = running.Databases
	from, to := reflect.ValueOf(running).Elem(), reflect.ValueOf(&kept).Elem()
	for i := range Settings() {
		s := &Settings()[i]
		if !s.Restart {
			continue
		}
		was := s.fields(from)
		for i, field := range s.fields(to) {
			field.Set(was[i])
		}
	}
	return &kept
}

// AtStart reports whether a setting takes effect only at a start.
func AtStart(path string) bool {
	s := settingAt(path)
	return s != nil && s.Restart
}
