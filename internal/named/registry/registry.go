// Package registry is the plugins that can be named: those of the configuration, those that are registered, and the
// programs in the folder of plugins. It tells what there is and whether each file is the one that was pinned, asks a
// plugin what it is, and writes down which come and which go.
package registry

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Registry is the plugins that can be named.
type Registry struct{ source embedders.Source }

// Of returns the plugins that can be named where source finds plugins.
func Of(source embedders.Source) Registry { return Registry{source} }

// Where a plugin's checksum is written down.
const (
	pinnedInFile    = "configuration"
	pinnedInCatalog = "catalogue"
	notPinned       = "no"
)

// What became of the file of a plugin.
const (
	fileOK       = "ok"
	fileMissing  = "missing"
	fileChanged  = "changed" // not the file that was pinned
	fileUnusable = "unusable"
)

// Known is a plugin that can be named.
type Known struct {
	Plugin string `json:"plugin"`
	// as it called itself when it was written down, or calls itself now in a sidecar
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Pinned  string `json:"pinned"`
	SHA256  string `json:"sha256,omitempty"` // as it was written down
	// "ok", "missing", "changed" (not the file that was pinned), "unusable"
	State       string   `json:"state"`
	Detail      string   `json:"detail,omitempty"`
	Env         []string `json:"env,omitempty"`
	Processes   int      `json:"processes"` // that may run for each model
	MemoryLimit int64    `json:"memory_limit_bytes,omitempty"`
	CallTimeout float64  `json:"call_timeout_seconds,omitempty"`
	Running     int      `json:"running"` // processes in sidecars of this user on this machine
	Circuit     string   `json:"circuit,omitempty"`

	hints []string // ways out of what Detail says
}

// List finds every plugin that a pipeline could name, and what runs of them.
func (c Registry) List(ctx context.Context) ([]Known, error) {
	settings, err := c.source.Registered()
	if err != nil {
		return nil, err
	}
	running, err := control.Find(ctx, settings.ControlFolder())
	if err != nil {
		c.source.Log.WarnContext(ctx, "running sidecars not asked", "error", err)
	}
	names := c.source.Find.Plugins(settings.Plugins.Dir)
	for _, p := range slices.Concat(settings.Plugins.Catalog, settings.Plugins.Registered) {
		names = append(names, p.Name)
	}
	if !strings.ContainsRune(settings.Plugins.Default, filepath.Separator) {
		names = append(names, settings.Plugins.Default)
	}
	slices.Sort(names)
	list := []Known{}
	for _, name := range slices.Compact(names) {
		k := c.known(settings, name)
		for _, s := range running {
			k.count(s.State.Plugins)
		}
		list = append(list, k)
	}
	return list, nil
}

// count adds what runs of the plugin in a sidecar.
func (k *Known) count(running []control.Plugin) {
	for _, p := range running {
		if p.Plugin != k.Plugin {
			continue
		}
		k.Running += len(p.Processes)
		k.Version = p.Version
		if k.Circuit == "" || p.Circuit != host.Closed {
			k.Circuit = string(p.Circuit)
		}
	}
}

// known tells of a plugin without starting it.
func (c Registry) known(settings *config.Config, name string) Known {
	k := Known{Plugin: name, Pinned: notPinned, State: fileOK, Processes: 1}
	program := name
	if entry, inFile := settings.Plugin(name); entry != nil {
		k.Version, k.SHA256, k.Env, k.MemoryLimit, k.Processes = entry.Version, entry.SHA256, entry.Env, entry.MemoryLimit,
			max(entry.Processes, 1)
		k.CallTimeout = entry.CallTimeout.Seconds()
		if k.SHA256 != "" {
			k.Pinned = pinnedInCatalog
			if inFile {
				k.Pinned = pinnedInFile
			}
		}
		if entry.Path != "" {
			program, k.Path = entry.Path, entry.Path
		}
	}
	path, err := settings.PluginProgram(c.source.Find, program)
	if err != nil {
		k.State, k.Detail, k.hints = fileUnusable, err.Error(), problem.Hints(err)
		if _, missing := errors.AsType[*config.NotFoundError](err); missing {
			k.State = fileMissing
		}
		return k
	}
	k.Path = path
	if k.SHA256 == "" {
		return k
	}
	switch sum, err := host.Sum(path); {
	case err != nil:
		k.State, k.Detail = fileUnusable, err.Error()
	case sum != k.SHA256:
		k.State, k.Detail = fileChanged, "sha256 is "+sum
	}
	return k
}

// Info is a plugin with what it says of itself.
type Info struct {
	Known

	Name          string `json:"name"`
	Model         string `json:"model"`
	Fingerprint   string `json:"fingerprint"`
	Dims          int    `json:"dims"`
	MaxTokens     int    `json:"max_tokens,omitempty"`
	MaxBatch      int    `json:"max_batch,omitempty"`
	MaxBatchBytes int    `json:"max_batch_bytes,omitempty"`
	Deterministic bool   `json:"deterministic"`
	Sparse        bool   `json:"sparse,omitempty"`
}

// Info starts a plugin, by its name or the path of its program, and asks it what it is. Without a model it is the one
// that a pipeline would get.
func (c Registry) Info(ctx context.Context, plugin, model string) (Info, error) {
	settings, err := c.source.Registered()
	if err != nil {
		return Info{}, err
	}
	d, found, err := c.describe(ctx, plugin, model)
	if err != nil {
		return Info{}, err
	}
	k := c.known(settings, found.Plugin)
	k.Path, k.Version = found.PluginPath, d.Version
	return Info{
		k, d.Plugin, d.Model, d.Fingerprint, d.Dims, d.MaxTokens, d.MaxBatch, d.MaxBatchBytes, d.Deterministic,
		d.Sparse,
	}, nil
}

// describe starts a plugin, asks it what it is, and ends it.
func (c Registry) describe(ctx context.Context, plugin, model string) (d embed.Description, found config.Embedder,
	err error,
) {
	h, found, err := c.source.Runner(plugin, model)
	if err != nil {
		return d, found, err
	}
	d, err = h.Describe(ctx)
	return d, found, errors.Join(err, h.Close())
}
