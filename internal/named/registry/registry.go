// Package registry handles the plugins that can be named: those of the configuration, the registered ones, and the
// programs in the plugin folder. It lists them and verifies their pins, queries their descriptions, and registers and
// removes them.
package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Registry handles the plugins that can be named.
type Registry struct{ source embedders.Source }

// Of returns the Registry of a source.
func Of(source embedders.Source) Registry { return Registry{source} }

// Where a plugin's checksum is stored.
const (
	pinnedInFile    = "configuration"
	pinnedInCatalog = "catalogue"
	notPinned       = "no"
)

// The states of a plugin's file.
const (
	fileOK       = "ok"
	fileMissing  = "missing"
	fileChanged  = "changed" // not the pinned file
	fileUnusable = "unusable"
)

// Known is a plugin that can be named.
type Known struct {
	Plugin string `json:"plugin"`
	// from its registration, or from a sidecar that runs it
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Pinned  string `json:"pinned"`
	SHA256  string `json:"sha256,omitempty"` // the pinned sum
	// "ok", "missing", "changed" (not the pinned file), "unusable"
	State       string   `json:"state"`
	Detail      string   `json:"detail,omitempty"`
	Env         []string `json:"env,omitempty"`
	Processes   int      `json:"processes"` // the limit per model
	MemoryLimit int64    `json:"memory_limit_bytes,omitempty"`
	CallTimeout float64  `json:"call_timeout_seconds,omitempty"`
	Running     int      `json:"running"` // processes in sidecars of this user on this machine
	Circuit     string   `json:"circuit,omitempty"`

	hints []string // about Detail
}

// List returns every plugin that a pipeline could name, with its running processes.
func (c Registry) List(ctx context.Context) ([]Known, error) {
	settings, err := c.source.Registered()
	if err != nil {
		return nil, err
	}
	running, err := control.Find(ctx, settings.ControlFolder())
	if err != nil {
		c.source.Log.WarnContext(ctx, "could not query running sidecars", "error", err)
	}
	names := c.source.Find.Plugins(settings.Plugins.Dir)
	names = append(names, lists.Map(settings.Plugins.Catalog, func(p config.Plugin) string { return p.Name })...)
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

// count adds the plugin's processes in a sidecar.
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

// known describes a plugin without starting it.
func (c Registry) known(settings *config.Config, name string) Known {
	k := Known{Plugin: name, Pinned: notPinned, State: fileOK, Processes: 1}
	program := name
	if entry := settings.Plugin(name); entry != nil {
		k.Version, k.SHA256, k.Env, k.MemoryLimit, k.Processes = entry.Version, entry.SHA256, entry.Env, entry.MemoryLimit,
			max(entry.Processes, 1)
		k.CallTimeout = entry.CallTimeout.Seconds()
		if k.SHA256 != "" {
			k.Pinned = pinnedInFile
			if entry.Registered {
				k.Pinned = pinnedInCatalog
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

// Info is a plugin with its description of itself.
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

// Info starts a plugin, by name or program path, and queries its description. Without a model it uses the default one.
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

// describe starts a plugin, queries its description, and stops it.
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

// Properties lists the plugin's properties for display: names and values.
func (i *Info) Properties() [][]any {
	return [][]any{
		{"plugin", i.Name},
		{"version", i.Version},
		{"path", i.Path},
		{"pinned", i.Pinned},
		{"sha256", i.SHA256},
		{"model", i.Model},
		{"fingerprint", i.Fingerprint},
		{"dims", i.Dims},
		{"max tokens", or(i.MaxTokens, "no limit", strconv.Itoa)},
		{"max batch", or(i.MaxBatch, "no limit", strconv.Itoa)},
		{"max batch bytes", or(i.MaxBatchBytes, "no limit", strconv.Itoa)},
		{"deterministic", i.Deterministic},
		{"sparse", i.Sparse},
		{"processes", i.Processes},
		{"memory limit", or(i.MemoryLimit, "none", wording.Size)},
		{"call timeout", or(i.CallTimeout, "as usual", func(s float64) string { return fmt.Sprintf("%gs", s) })},
		{"environment", strings.Join(i.Env, " ")},
	}
}

// or formats a value, or returns word if it is zero.
func or[T comparable](value T, word string, write func(T) string) string {
	if value == *new(T) {
		return word
	}
	return write(value)
}

// Trial is a plugin that is tested on its own, as its author would, with the given environment.
type Trial struct {
	config.Embedder

	source embedders.Source
}

// Trial finds a plugin by its file or its name.
func (c Registry) Trial(plugin string) (Trial, error) {
	if info, err := os.Stat(plugin); err == nil && info.Mode().IsRegular() && !strings.ContainsRune(plugin,
		os.PathSeparator) {
		plugin = "." + string(os.PathSeparator) + plugin
	}
	found, err := c.source.Config.Embedder(c.source.Find, plugin, "")
	return Trial{found, c.source}, err
}

// Keeps tests whether the plugin follows the contract, by the checks in o.
func (t Trial) Keeps(ctx context.Context, o conformance.Options) (*conformance.Report, error) {
	o.Path, o.Env = t.PluginPath, t.Env
	if t.ModelPath == "" {
		o.Model = t.Model
	}
	if t.CallTimeout > 0 {
		o.CallTimeout = host.CallTimeout(t.CallTimeout)
	}
	report, err := conformance.Run(ctx, o)
	if err != nil {
		return nil, problem.New(problem.Usage, err)
	}
	return report, nil
}

// Bench is the speed of a plugin.
type Bench struct {
	Plugin  string              `json:"plugin"`
	Version string              `json:"version"`
	Model   string              `json:"model"`
	Dims    int                 `json:"dims"`
	Speeds  []conformance.Speed `json:"speeds"`
}

// Bench measures the plugin through its host, for each batch size for the given time.
func (t Trial) Bench(ctx context.Context, each time.Duration) (b Bench, err error) {
	h, err := t.source.Once(t.Embedder)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	about, err := h.Describe(ctx)
	if err != nil {
		return b, err
	}
	speeds, err := conformance.Bench(ctx, h, about, each)
	return Bench{about.Plugin, about.Version, about.Model, about.Dims, speeds}, err
}

// Reloaded is the result for a plugin in a sidecar.
type Reloaded struct {
	Sidecar string `json:"sidecar"`
	Pid     int    `json:"pid"`
	control.Reloaded
}

// Reload makes the sidecars of this user on this machine switch to the current files of the named plugins, or all. With
// a database, as database.Which returns it, it only asks the sidecars of that database. If some fail, it returns the
// results and an error.
func (c Registry) Reload(ctx context.Context, names []string, which string) ([]Reloaded, error) {
	sidecars, err := c.sidecars(ctx, which)
	if err != nil {
		return nil, err
	}
	list := []Reloaded{}
	var problems, refused []error
	for _, s := range sidecars {
		results, err := s.Reload(ctx, names)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, r := range results {
			list = append(list, Reloaded{s.State.Instance, s.State.Pid, r})
			if r.Detail != "" {
				refused = append(refused, fmt.Errorf("sidecar %s: %s", s.State.Instance, r.Detail))
			}
		}
	}
	problems = append(problems, refused...)
	switch {
	case len(list) == 0 && len(problems) == 0:
		return nil, problem.New(problem.Failed, errors.New("no running sidecar uses that plugin"),
			"embedsidecar plugins list shows what runs")
	case len(problems) > 0:
		return list, problem.New(problem.Failed, errors.Join(problems...), "running plugins continue unchanged",
			"another model needs a pipeline with a new name and destination; or restart the sidecar with the previous model")
	}
	return list, nil
}

// sidecars finds the sidecars of this user on this machine, with a database only those that work for it.
func (c Registry) sidecars(ctx context.Context, which string) ([]control.Sidecar, error) {
	folder := c.source.Config.ControlFolder()
	sidecars, err := control.Find(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(sidecars) == 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("no sidecar of this user runs here (looked in %s)", folder),
			"one of another user, in a container or on another machine reloads at SIGHUP",
			"a sidecar uses the current files when it starts")
	}
	here := len(sidecars)
	sidecars = slices.DeleteFunc(sidecars, func(s control.Sidecar) bool {
		return which != "" && s.State.Database != which && !slices.Contains(s.State.Databases, which)
	})
	if len(sidecars) == 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("none of the %s of this user here works for that database", wording.Count(int64(here), "sidecar")),
			"embedsidecar plugins list shows what runs here; one that has not connected yet does not know its database",
			"a sidecar reloads its plugins at SIGHUP")
	}
	return sidecars, nil
}

// Configure makes the sidecars of this user on this machine apply their current configuration files.
func (c Registry) Configure(ctx context.Context, which string) (list []control.Configured, err error) {
	sidecars, err := c.sidecars(ctx, which)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, s := range sidecars {
		done, err := s.Configure(ctx)
		if err != nil {
			problems = append(problems, problem.New(problem.Failed, err))
			continue
		}
		list = append(list, done)
	}
	return list, errors.Join(problems...)
}
