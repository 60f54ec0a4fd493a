package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/control"
	"github.com/embedsidecar/embedsidecar/internal/wording"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Where a plugin's checksum is written down.
const (
	pinnedInFile    = "configuration"
	pinnedInCatalog = "catalogue"
	notPinned       = "no"
)

// known is a plugin that can be named, as plugins list shows it.
type known struct {
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
}

func newPluginsList() *command {
	return &command{
		name: "list", group: groupPlugins, usage: "list the plugins that can be named, and what runs of them",
		description: "Plugins of the configuration file, of the catalogue of registered ones, and the programs in the folder of plugins. STATE says whether the file is the one that was pinned; RUNNING counts the processes in the sidecars of this user on this machine.",
		settings:    []string{config.GroupEmbedding}, run: listPlugins,
	}
}

func listPlugins(ctx context.Context, env *environment) error {
	list, err := knownPlugins(ctx, env)
	if err != nil {
		return err
	}
	return env.show(map[string][]known{"plugins": list}, func() listing {
		l := listing{header: []string{"plugin", "version", "pinned", "state", "running", "circuit", "path"}, right: []int{4}}
		for _, k := range list {
			l.rows = append(l.rows, []any{k.Plugin, k.Version, k.Pinned, k.State, k.Running, k.Circuit, k.Path})
		}
		return l
	})
}

// knownPlugins finds every plugin that a pipeline could name.
func knownPlugins(ctx context.Context, env *environment) ([]known, error) {
	c, err := env.embedders().Registered()
	if err != nil {
		return nil, err
	}
	running, err := control.Find(ctx, c.ControlFolder())
	if err != nil {
		env.log.WarnContext(ctx, "running sidecars not asked", "error", err)
	}
	names := env.find.Plugins(c.Plugins.Dir)
	for _, p := range slices.Concat(c.Plugins.Catalog, c.Plugins.Registered) {
		names = append(names, p.Name)
	}
	if !strings.ContainsRune(c.Plugins.Default, filepath.Separator) {
		names = append(names, c.Plugins.Default)
	}
	slices.Sort(names)
	list := []known{}
	for _, name := range slices.Compact(names) {
		k := describeKnown(c, env.find, name)
		for _, s := range running {
			for _, p := range s.State.Plugins {
				if p.Plugin == name {
					k.Running += len(p.Processes)
					k.Version = p.Version
					if k.Circuit == "" || p.Circuit != host.Closed {
						k.Circuit = string(p.Circuit)
					}
				}
			}
		}
		list = append(list, k)
	}
	return list, nil
}

// describeKnown tells of a plugin without starting it.
func describeKnown(c *config.Config, find config.Finder, name string) known {
	k := known{Plugin: name, Pinned: notPinned, State: "ok", Processes: 1}
	program := name
	if entry, inFile := c.Plugin(name); entry != nil {
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
	if k.SHA256 == "" && name == c.Plugins.Default && c.Plugins.SHA256 != "" {
		k.SHA256, k.Pinned = c.Plugins.SHA256, pinnedInFile
	}
	path, err := find.Plugin(program, c.Plugins.Dir)
	if err != nil {
		k.State, k.Detail = "unusable", err.Error()
		if _, missing := errors.AsType[*config.NotFoundError](err); missing {
			k.State = "missing"
		}
		return k
	}
	k.Path = path
	if k.SHA256 == "" {
		return k
	}
	switch sum, err := host.Sum(path); {
	case err != nil:
		k.State, k.Detail = "unusable", err.Error()
	case sum != k.SHA256:
		k.State, k.Detail = "changed", "sha256 is "+sum
	}
	return k
}

func newPluginsInfo() *command {
	return &command{
		name: "info", group: groupPlugins, usage: "start a plugin and print what it says of itself",
		arguments: "PLUGIN [MODEL]", minArgs: 1, maxArgs: 2,
		description: "PLUGIN is a name or the path of a program. Without MODEL it is the model that a pipeline would get, or the plugin's only one.",
		settings:    []string{config.GroupEmbedding}, run: pluginInfo,
	}
}

func pluginInfo(ctx context.Context, env *environment) (err error) {
	c, err := env.embedders().Registered()
	if err != nil {
		return err
	}
	model := ""
	if len(env.args) > 1 {
		model = env.args[1]
	}
	h, found, err := env.embedders().Runner(env.args[0], model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	d, err := h.Describe(ctx)
	if err != nil {
		return err
	}
	k := describeKnown(c, env.find, found.Plugin)
	k.Path, k.Version = found.PluginPath, d.Version
	type info struct {
		known
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
	value := info{
		k, d.Plugin, d.Model, d.Fingerprint, d.Dims, d.MaxTokens, d.MaxBatch, d.MaxBatchBytes, d.Deterministic,
		d.Sparse,
	}
	return env.show(value, func() listing {
		return listing{header: []string{"property", "value"}, rows: [][]any{
			{"plugin", d.Plugin},
			{"version", d.Version},
			{"path", k.Path},
			{"pinned", k.Pinned},
			{"sha256", k.SHA256},
			{"model", d.Model},
			{"fingerprint", d.Fingerprint},
			{"dims", d.Dims},
			{"max tokens", unlimited(d.MaxTokens)},
			{"max batch", unlimited(d.MaxBatch)},
			{"max batch bytes", unlimited(d.MaxBatchBytes)},
			{"deterministic", d.Deterministic},
			{"sparse", d.Sparse},
			{"processes", k.Processes},
			{"memory limit", limitText(k.MemoryLimit)},
			{"call timeout", timeoutText(k.CallTimeout)},
			{"environment", strings.Join(k.Env, " ")},
		}}
	})
}

func unlimited(n int) string {
	if n == 0 {
		return "no limit"
	}
	return fmt.Sprint(n)
}

func limitText(bytes int64) string {
	if bytes == 0 {
		return "none"
	}
	return wording.Size(bytes)
}

func timeoutText(seconds float64) string {
	if seconds == 0 {
		return "as usual"
	}
	return fmt.Sprintf("%gs", seconds)
}
