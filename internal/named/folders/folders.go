// Package folders handles the models that can be named: those of the configuration, and the folders on disk. It finds
// and verifies them, opens one with the plugin for model folders to describe it, and makes new ones from published
// models. Package models handles the content of a folder and its installation.
package folders

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/named/models"
	"github.com/embedsidecar/embedsidecar/plugins/host"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Plugin returns the plugin for model folders.
func Plugin() string { return manifest.OfFolders().Name }

// Folders handles the models that can be named.
type Folders struct{ source embedders.Source }

// Of returns the Folders of a source.
func Of(source embedders.Source) Folders { return Folders{source} }

func (f Folders) found() []models.Info {
	return models.List(f.source.Find.Models(f.source.Config.ModelDir))
}

func (f Folders) home() (string, error) { return f.source.Find.NewModels(f.source.Config) }

// known is a model that the user named.
type known struct {
	name   string // its name in the configuration, or the name of its folder
	folder string
	// for open: the name of a configured model, whose settings then apply, or else the folder
	ref string
}

// named returns the model with a name or path; "" is the default one.
func (f Folders) named(name string) (known, error) {
	settings := f.source.Config
	name = cmp.Or(name, settings.DefaultModel, manifest.OfFolders().Model.Default)
	listed := slices.ContainsFunc(settings.Models, func(m config.Model) bool { return m.Name == name })
	if listed {
		found, err := settings.Embedder(f.source.Find, f.plugin(name), name)
		return known{name: name, folder: found.ModelPath, ref: name}, err
	}
	folder, err := f.source.Find.Model(name, settings.ModelDir, settings.ModelNames()...)
	return known{name: filepath.Base(folder), folder: folder, ref: folder}, err
}

// plugin returns the plugin to open a model with: the configured one if it supports folders, else the default for
// folders, which the model's own folder may replace.
func (f Folders) plugin(ref string) string {
	for _, m := range f.source.Config.Models {
		if of := manifest.Of(m.Plugin); m.Name == ref && of != nil && of.Model.Kind == manifest.Folder {
			return m.Plugin
		}
	}
	return Plugin()
}

// open returns a host of the plugin for model folders with a model, by its configured name or its folder. It starts at
// its first use. The caller closes it.
func (f Folders) open(ref, precision string) (*host.Host, error) {
	found, err := f.source.Config.Embedder(f.source.Find, f.plugin(ref), ref)
	if err != nil {
		return nil, err
	}
	if precision != "" {
		found.Env = maps.Clone(found.Env)
		found.Env["EMBEDSIDECAR_PLUGIN_PRECISION"] = precision
	}
	return f.source.Once(found)
}

// List returns the model folders that can be found by name and the configured models, with information from their
// folder or plugin.
func (f Folders) List() []models.Info {
	list, settings := f.found(), f.source.Config
	for _, m := range settings.Models {
		if slices.ContainsFunc(list, func(i models.Info) bool { return i.Name == m.Name }) {
			continue
		}
		plugin := m.Plugin
		plugin = cmp.Or(plugin, settings.Plugins.Default)
		info := models.Info{Type: "plugin " + plugin, Files: []string{}}
		if found, err := settings.Embedder(f.source.Find, plugin, m.Name); err != nil {
			info.Problem = strings.Join(strings.Fields(err.Error()), " ")
		} else if found.ModelPath != "" {
			info = models.Describe(found.ModelPath)
		}
		info.Name = m.Name
		info.Reranks = info.Reranks || manifest.For(plugin).Reranks(m.Settings.Values)
		if dims := m.Settings.Dims(); dims > 0 {
			info.Dims = dims
		}
		list = append(list, info)
	}
	return list
}

// Verified is the result of verifying the files of one model.
type Verified struct {
	Path     string   `json:"path"`
	OK       bool     `json:"ok"`
	Problems []string `json:"problems"`
}

// Verify reads every file of the named models, or of all that are found. If a file is wrong, it returns the results and
// an error.
func (f Folders) Verify(ctx context.Context, names []string) ([]Verified, error) {
	var folders []string
	if len(names) > 0 {
		m, err := f.named(names[0])
		if err != nil {
			return nil, err
		}
		folders = append(folders, m.folder)
	} else {
		folders = lists.Map(f.found(), func(m models.Info) string { return m.Path })
	}
	list, bad := []Verified{}, 0
	for _, folder := range folders {
		problems, err := models.Verify(ctx, folder)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			problems = append(problems, err.Error())
		}
		if len(problems) > 0 {
			bad++
		}
		list = append(list, Verified{folder, len(problems) == 0, problems})
	}
	if bad > 0 {
		return list, problem.New(problem.Failed, fmt.Errorf("%d of %d models do not match their %s", bad, len(list),
			models.SumsFile), "import or pull them again")
	}
	return list, nil
}
