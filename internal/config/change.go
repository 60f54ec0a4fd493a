package config

import (
	"reflect"
	"slices"
	"strings"
)

// Changes returns the settings in which another configuration differs from this one: those that can be taken over
// while the program runs, lists as a whole, and those that take effect at the next start.
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

// OnlyPipelines reports whether changes are of pipelines and of what answers about them, and of nothing that what works
// was started with.
func OnlyPipelines(changes []string) bool {
	return !slices.ContainsFunc(changes, func(path string) bool {
		return path != "pipelines" && path != "publication.column_lists" && !strings.HasPrefix(path, "http.admin.")
	})
}

// Keeping returns the configuration with the settings of another that take effect at a start.
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

// AtStart reports whether a setting takes effect at a start only.
func AtStart(path string) bool {
	s := settingAt(path)
	return s != nil && s.Restart
}
