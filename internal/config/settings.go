// Package config knows what a user may set: by flag, by environment, in a YAML file and in the one-line form of a
// pipeline. It reads, merges and checks all of it, finds plugins and models on disk, and keeps passwords out of sight.
//
// It refuses what it does not understand (unknown keys, unset variables, text after the end) and reports every mistake
// at once, each with its place. It talks to no database, prints nothing and reads the environment only through the
// function it is given.
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

// Setting is one thing that a user may set: an entry of settings.yaml, which says what its fields are.
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

// EnvName returns the environment variable that stands for a flag.
func EnvName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Env is the variable that stands for the setting: EMBEDSIDECAR_ and its flag or, without one, its key; "" for elements
// lists and the version.
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

// Settings returns every setting, in the order of help texts. The table is part of the program: one that cannot be read
// is a mistake in it, which the first test finds.
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

// librarySettings say where the libraries are that plugins load.
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

// settingAt returns the setting of a path, in which lists may have their indexes, or nil.
func settingAt(path string) *Setting {
	all, path := Settings(), indexes.ReplaceAllString(path, "[]")
	for i := range all {
		if all[i].Path == path {
			return &all[i]
		}
	}
	return nil
}

// Default is the value without any setting, as a user would write it; "" for elements of lists.
func (s *Setting) Default() string {
	if strings.Contains(s.Path, "[]") {
		return ""
	}
	return s.text(reflect.ValueOf(Default()).Elem())
}

// Value is the setting's value in a configuration, as a user would write it, without passwords.
func (s *Setting) Value(c *Config) string {
	value := s.text(reflect.ValueOf(c).Elem())
	if s.Secret {
		return RedactDSN(value)
	}
	return value
}
