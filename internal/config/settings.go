// Package config reads, merges and checks the configuration: flags, environment, a YAML file and the one-line form of a
// pipeline. It finds plugins and models on disk, and hides passwords.
//
// It refuses what it does not know (unknown keys, unset variables, trailing text) and reports all mistakes at once,
// each with its place. It does not connect to a database, prints nothing and reads the environment only from its
// arguments.
package config

import (
	_ "embed"
	"reflect"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Setting is an entry of settings.yaml, which describes its fields.
type Setting struct {
	Path        string   `yaml:"path"`
	Fields      string   `yaml:"set"`
	Type        string   `yaml:"type"`
	Low         string   `yaml:"low"`
	High        string   `yaml:"high"`
	Choices     []string `yaml:"choices"`
	Flag        string   `yaml:"flag"`
	Group       string   `yaml:"group"`
	Placeholder string   `yaml:"value"`
	Secret      bool     `yaml:"secret"`
	Excludes    string   `yaml:"excludes"`
	Restart     bool     `yaml:"restart"`
	Usage       string   `yaml:"doc"`
}

// The groups of settings with a flag, and of the flags that describe pipelines.
const (
	GroupDatabase  = "Database"
	GroupPipeline  = "Pipelines"
	GroupEmbedding = "Embedding"
	GroupWork      = "Work"
	GroupOps       = "Operations"
	GroupQueries   = "Queries"
	GroupAdmin     = "Administration"
)

const (
	envPrefix       = "EMBEDSIDECAR_"
	pluginEnvPrefix = "EMBEDSIDECAR_PLUGIN_"
)

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Env is the environment variable of the setting: EMBEDSIDECAR_ and its flag or, without one, its key; "" for list
// elements and the version.
func (s *Setting) Env() string {
	switch {
	case s.Flag != "":
		return EnvName(s.Flag)
	case strings.Contains(s.Path, "[]") || s.Type == "version":
		return ""
	}
	return EnvName(strings.ReplaceAll(s.Path, ".", "_"))
}

//go:embed settings.yaml
var table []byte

// Settings returns all settings, in the order of help texts. settings.yaml is part of the program, so a mistake in it
// is a bug, which the first test finds.
var Settings = sync.OnceValue(func() []Setting {
	var list, all []Setting
	if err := yaml.UnmarshalWithOptions(table, &list, yaml.Strict()); err != nil {
		panic(err)
	}
	for _, s := range list {
		if s.Path == "pipelines[].into.type" {
			s.Choices = pipeline.StoredTypes()
		}
		if s.Path == "threads" {
			all = append(all, librarySettings()...)
		}
		all = append(all, s)
	}
	return all
})

// librarySettings are the settings for paths of the plugins' libraries.
func librarySettings() (list []Setting) {
	for _, of := range manifest.All() {
		if of.Library != nil {
			list = append(list, Setting{
				Path: of.Library.Setting, Fields: "Libraries", Type: "text",
				Usage: of.Library.Is + " for the plugin " + of.Name + ". For a library outside of the usual folders",
			})
		}
	}
	return list
}

// settingAt returns the setting at a path, in which lists may have indexes, or nil.
func settingAt(path string) *Setting {
	all, path := Settings(), indexes.ReplaceAllString(path, "[]")
	for i := range all {
		if all[i].Path == path {
			return &all[i]
		}
	}
	return nil
}

// Default returns the default value, as a user would write it; "" for list elements.
func (s *Setting) Default() string {
	if strings.Contains(s.Path, "[]") {
		return ""
	}
	return s.text(reflect.ValueOf(Default()).Elem())
}

// Value returns the setting's value in a configuration, as a user would write it, without passwords.
func (s *Setting) Value(c *Config) string {
	value := s.text(reflect.ValueOf(c).Elem())
	if s.Secret {
		return RedactDSN(value)
	}
	return value
}
