// Package registry is the plugins that can be named: those of the configuration, those that are registered, and the
// programs in the folder of plugins. It tells what there is and whether each file is the one that was pinned, asks a
// plugin what it is, and writes down which come and which go.
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

// Properties are what a person reads of a plugin: names and values.
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

// or is a value, or a word in its place where it is zero.
func or[T comparable](value T, word string, write func(T) string) string {
	if value == *new(T) {
		return word
	}
	return write(value)
}

// Trial is a plugin that is tried by itself, as its author would, with the environment that it is given here.
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

// Keeps finds out whether the plugin keeps the contract, by the checks that o names.
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

// Bench is how fast a plugin is.
type Bench struct {
	Plugin  string              `json:"plugin"`
	Version string              `json:"version"`
	Model   string              `json:"model"`
	Dims    int                 `json:"dims"`
	Speeds  []conformance.Speed `json:"speeds"`
}

// Bench measures the plugin through its host, each number of texts a call for a time.
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

// Reloaded is what became of a plugin in a sidecar.
type Reloaded struct {
	Sidecar string `json:"sidecar"`
	Pid     int    `json:"pid"`
	control.Reloaded
}

// Reload has the sidecars of this user on this machine move to the files of plugins as they are now: of these names, or
// all. Where a database is named, as database.Which tells it, those of others are left alone. Where some did not, an
// error that says why comes beside what became of all.
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
		return list, problem.New(problem.Failed, errors.Join(problems...), "what ran goes on as it was",
			"another model is another pipeline: a new name and a new destination, or a restart of the sidecar with the model as it was")
	}
	return list, nil
}

// sidecars finds those of this user on this machine: where a database is named, those that work for it.
func (c Registry) sidecars(ctx context.Context, which string) ([]control.Sidecar, error) {
	folder := c.source.Config.ControlFolder()
	sidecars, err := control.Find(ctx, folder)
	if err != nil {
		return nil, err
	}
	if len(sidecars) == 0 {
		return nil, problem.New(problem.Failed, fmt.Errorf("no sidecar of this user runs here (looked in %s)", folder),
			"one of another user, in a container or on another machine reloads at SIGHUP",
			"a sidecar that starts takes the files as they are")
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

// Configure has the sidecars of this user on this machine take over their configurations as they are written down now.
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
