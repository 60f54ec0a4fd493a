package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Registration is a plugin to pin with its settings. Missing ones stay unchanged.
type Registration struct {
	File   string
	Name   string // "": the file's name without embedsidecar- and an extension such as .py
	Said   []Said
	DryRun bool
}

// Said is a setting of the plugin's entry with the caller's name for it, such as --processes, for error messages.
// Without a value it is unchanged; "0" removes it.
type Said struct {
	As, Key string
	Values  []string
}

// Registered is the result of a registration.
type Registered struct {
	Catalogue string `json:"catalogue"`
	Path      string `json:"path"`
	Plugin    string `json:"plugin"`
	Result    string `json:"result"`
	SHA256    string `json:"sha256"`
	Version   string `json:"version"`
	// NotNoted says why the version was not stored; "": it was stored, or not queried.
	NotNoted string `json:"-"`
}

// The results of a change. Those of a dry run begin with would_be_.
const (
	registered = "registered"
	updated    = "updated"
	already    = "already_registered"
	removed    = "removed"
	unknown    = "not_registered"
	wouldBe    = "would_be_"
)

// ending is a file extension for a programming language; a version such as -1.2 is not one.
var ending = regexp.MustCompile(`\.[A-Za-z][A-Za-z0-9]*$`)

// Register pins a plugin: it stores the SHA-256 of its file, with the given settings. It may return an error together
// with Registered.NotNoted.
func (c Registry) Register(ctx context.Context, r Registration) (done Registered, err error) {
	path, err := filepath.Abs(r.File)
	if err != nil {
		return done, err
	}
	if path, err = c.source.Find.Plugin(path, ""); err != nil {
		return done, err
	}
	name := r.Name
	if name == "" {
		name = strings.TrimPrefix(filepath.Base(path), "embedsidecar-")
		if stem := strings.TrimSuffix(name, ending.FindString(name)); stem != "" {
			name = stem
		}
	}
	settings := c.source.Config
	if entry := settings.Plugin(name); entry != nil {
		return done, problem.New(problem.Conflict,
			fmt.Errorf("plugin %q has an entry in the configuration file %s, which takes precedence", entry.Name, settings.File()),
			"change its sha256 there, or take the entry out")
	}
	sum, err := host.Sum(path)
	if err != nil {
		return done, err
	}
	done = Registered{
		Plugin: name, Result: registered, Path: path, SHA256: sum,
		Catalogue: c.source.Find.Catalogue(settings),
	}
	err = config.ChangeCatalogue(done.Catalogue, r.DryRun, func(list []config.Plugin) ([]config.Plugin, error) {
		return c.enter(ctx, r, list, &done)
	})
	switch {
	case errors.Is(err, os.ErrPermission), errors.Is(err, os.ErrNotExist):
		return done, problem.New(problem.Permission, err,
			"name a catalogue that this user may write, the same for run: --set plugins.catalog_file=FILE")
	case err != nil:
		return done, err
	case r.DryRun && done.Result != already:
		done.Result = wouldBe + done.Result
	}
	return done, nil
}

// enter changes a plugin's entry in the catalog, or adds one.
func (c Registry) enter(ctx context.Context, r Registration, list []config.Plugin,
	done *Registered,
) ([]config.Plugin, error) {
	at := slices.IndexFunc(list, func(p config.Plugin) bool { return p.Name == done.Plugin })
	if at < 0 {
		at, list = len(list), append(list, config.Plugin{Name: done.Plugin})
	} else {
		done.Result = updated
	}
	before := list[at]
	list[at].Path, list[at].SHA256 = done.Path, done.SHA256
	if err := r.amend(&list[at]); err != nil {
		return nil, err
	}
	if before.SHA256 != done.SHA256 || before.Path != done.Path {
		list[at].Version, done.NotNoted = c.version(ctx, list[at])
	}
	if reflect.DeepEqual(before, list[at]) {
		done.Result = already
	}
	done.Version = list[at].Version
	return list, nil
}

// amend applies the given settings.
func (r *Registration) amend(p *config.Plugin) error {
	for _, said := range r.Said {
		if len(said.Values) == 0 || said.Values[0] == "" {
			continue
		}
		if err := p.Set(said.Key, said.Values...); err != nil {
			return problem.New(problem.Usage, fmt.Errorf("%s: %w", said.As, err))
		}
	}
	return nil
}

// version starts the plugin with its default model, and returns its version. A plugin that cannot start now, because a
// model or a key is missing, is registered even so: why then has the reason.
func (c Registry) version(ctx context.Context, p config.Plugin) (version, why string) {
	// As if it were already in the catalog, instead of a previous entry.
	found, err := c.source.Config.WithRegistered([]config.Plugin{p}).Embedder(c.source.Find, p.Name, "")
	if missing, ok := errors.AsType[*config.NotFoundError](err); ok {
		return "", fmt.Sprintf("its version is not recorded: the %s %q, without which it does not start, is not there yet",
			missing.Kind, missing.Name)
	}
	if err != nil {
		return "", "its version is not recorded: " + err.Error()
	}
	var d embed.Description
	found.Model = "" // any model: only the plugin's version is needed
	h, err := c.source.Once(found)
	if err == nil {
		d, err = h.Describe(ctx)
		err = errors.Join(err, h.Close())
	}
	if err != nil {
		_, code := embed.Classify(err)
		return "", fmt.Sprintf("its version is not recorded, because it does not start without arguments (%s): see plugins info", code)
	}
	return d.Version, ""
}

// Removed is the result of removing a plugin.
type Removed struct {
	Plugin string `json:"plugin"`
	Result string `json:"result"`
}

// Remove removes plugins from the catalog; their files stay. If some are missing, it returns the results and an error.
func (c Registry) Remove(names []string, dryRun bool) (list []Removed, err error) {
	var missing, known []string
	change := func(entries []config.Plugin) ([]config.Plugin, error) {
		list = []Removed{}
		for _, p := range entries {
			known = append(known, p.Name)
		}
		for _, name := range names {
			at := slices.IndexFunc(entries, func(p config.Plugin) bool { return p.Name == name })
			switch {
			case at < 0:
				list, missing = append(list, Removed{name, unknown}), append(missing, name)
				continue
			case dryRun:
				list = append(list, Removed{name, wouldBe + removed})
			default:
				list = append(list, Removed{name, removed})
			}
			entries = slices.Delete(entries, at, at+1)
		}
		return entries, nil
	}
	path := c.source.Find.Catalogue(c.source.Config)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		_, _ = change(nil) // nothing to remove, so do not create the file
	} else if err := config.ChangeCatalogue(path, dryRun, change); err != nil {
		return nil, err
	}
	if len(missing) == 0 {
		return list, nil
	}
	hint := "the catalogue is empty"
	if len(known) > 0 {
		hint = "it has: " + strings.Join(known, ", ")
	}
	return list, problem.New(problem.NoMatch, fmt.Errorf("not in the catalogue %s: %s", path,
		strings.Join(missing, ", ")), hint)
}

// changedHints are the hints about a file that does not match its pin.
var changedHints = []string{
	"restore the pinned file, or, if the new one is intended:",
	"embedsidecar plugins register FILE, then embedsidecar plugins reload; an entry in the configuration file is changed there",
}

// Verdict is the result of verifying one plugin.
type Verdict struct {
	Plugin string   `json:"plugin"`
	Result string   `json:"result"` // "ok" or "wrong"
	Detail string   `json:"detail"`
	Hints  []string `json:"hints,omitempty"`
}

// The results of a Verdict.
const (
	verdictOK    = "ok"
	verdictWrong = "wrong"
)

// Verify checks the files of plugins against their pins, starts them and checks their answers: the named ones, or all
// pinned ones. If something is wrong, it returns the verdicts and an error.
func (c Registry) Verify(ctx context.Context, names []string) ([]Verdict, error) {
	settings, err := c.source.Registered()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for _, p := range settings.Plugins.Catalog {
			if p.SHA256 != "" && !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	list := []Verdict{}
	var wrong int64
	var hints []string
	for _, name := range names {
		v := c.verify(ctx, settings, name)
		if v.Result != verdictOK {
			wrong++
		}
		list, hints = append(list, v), append(hints, v.Hints...)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wrong > 0:
		return list, problem.New(problem.Failed,
			fmt.Errorf("%s failed the verification", wording.Count(wrong, "plugin")), slices.Compact(hints)...)
	}
	return list, nil
}

func (c Registry) verify(ctx context.Context, settings *config.Config, name string) Verdict {
	k := c.known(settings, name)
	switch k.State {
	case fileChanged:
		return Verdict{name, verdictWrong, k.Path + " is not the file that was pinned: " + k.Detail, changedHints}
	case fileMissing, fileUnusable:
		return Verdict{name, verdictWrong, k.Detail, k.hints}
	}
	d, _, err := c.describe(ctx, name, "") // at its start it gets test texts
	if err != nil {
		return Verdict{name, verdictWrong, c.source.Redact(err.Error()), problem.Hints(err)}
	}
	detail := fmt.Sprintf("version %s, model %s, %d wide", d.Version, d.Model, d.Dims)
	switch {
	case k.Version != "" && k.Version != d.Version:
		return Verdict{name, verdictWrong, fmt.Sprintf("it reports version %s, but version %s was registered",
			d.Version, k.Version), changedHints}
	case k.SHA256 == "":
		detail += "; not pinned"
	}
	return Verdict{name, verdictOK, detail, nil}
}
