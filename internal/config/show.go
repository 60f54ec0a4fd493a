package config

import (
	"cmp"
	"slices"
	"strings"
)

// Shown is a value of a configuration as it may be seen: without passwords and keys.
type Shown struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // "--slot", "EMBEDSIDECAR_SLOT", "embedsidecar.yaml:3:9" or "default"
}

// Show returns what is set, with where, or every value that counts, those that nobody has set among them.
func (c *Config) Show(all bool) []Shown {
	list := []Shown{}
	shown := *c.Written() // to look at a part of a list may make it
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

// partsOf returns the settings of an element of a list.
func partsOf(list string) (parts []*Setting) {
	for i := range Settings() {
		if s := &Settings()[i]; strings.HasPrefix(s.Path, list+"[].") {
			parts = append(parts, s)
		}
	}
	return parts
}

// partOrigin tells where a part of an element was set. Table, columns and destination may come with the whole, in the
// form of one line.
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
