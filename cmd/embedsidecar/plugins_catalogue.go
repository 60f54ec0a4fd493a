package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// registerCommand pins a plugin.
type registerCommand struct {
	name        string
	processes   int
	memoryLimit string
	callTimeout string
	env         cli.StringSlice
}

func newPluginsRegister() *command {
	c := &registerCommand{}
	return &command{
		name: "register", group: groupPlugins, usage: "pin a plugin: write its file's SHA-256 into the catalogue",
		arguments: "FILE", minArgs: 1, maxArgs: 1,
		description: "Pipelines name it by its name from then on, and only this file is started. Registering it again takes the file as it is now, and keeps what is not named anew; running sidecars move to it at plugins reload. The catalogue is a file (--plugin-catalog); entries of the configuration file win over it.",
		flags: []cli.Flag{
			&cli.StringFlag{
				Name: "as", Destination: &c.name,
				Usage: "`NAME` of the plugin (default: the file's without embedsidecar- and an ending such as .py)",
			},
			&cli.IntFlag{
				Name: "processes", Destination: &c.processes, Usage: "`N` processes for each model, 1 to 64",
				DefaultText: "1",
			},
			&cli.StringFlag{
				Name: "memory-limit", Destination: &c.memoryLimit,
				Usage:       "`SIZE` of memory above which a process is replaced, such as 2GiB; 0 takes the limit away",
				DefaultText: "none",
			},
			&cli.StringFlag{
				Name: "call-timeout", Destination: &c.callTimeout,
				Usage: "`DURATION` after which a call without an answer is given up and the plugin killed, beside what its texts add, 1s to 1h; 0 for what is usual", DefaultText: "30s, or what a remote model's timeout asks for",
			},
			&cli.StringSliceFlag{
				Name: "allow-env", Destination: &c.env,
				Usage: "`NAME` of a variable that it may see, beside EMBEDSIDECAR_PLUGIN_...; again for more",
			},
		},
		settings: []string{config.GroupEmbedding}, acts: true, run: c.run,
	}
}

// ending is the end of a file's name that says what it is written in; that of a version, -1.2, is none.
var ending = regexp.MustCompile(`\.[A-Za-z][A-Za-z0-9]*$`)

func (r *registerCommand) run(ctx context.Context, env *environment) error {
	path, err := filepath.Abs(env.args[0])
	if err != nil {
		return err
	}
	if path, err = env.find.Plugin(path, ""); err != nil {
		return err
	}
	name := r.name
	if name == "" {
		name = strings.TrimPrefix(filepath.Base(path), "embedsidecar-")
		if stem := strings.TrimSuffix(name, ending.FindString(name)); stem != "" {
			name = stem
		}
	}
	if entry, inFile := env.config.Plugin(name); inFile {
		return fail(exitConflict, fmt.Errorf("plugin %q has an entry in the configuration file %s, which would win",
			entry.Name, env.config.File()), "change its sha256 there, or take the entry out")
	}
	sum, err := host.Sum(path)
	if err != nil {
		return err
	}
	catalogue := env.find.Catalogue(env.config)
	result := "registered"
	var entry config.Plugin
	change := func(list []config.Plugin) ([]config.Plugin, error) {
		at := slices.IndexFunc(list, func(p config.Plugin) bool { return p.Name == name })
		if at < 0 {
			at, list = len(list), append(list, config.Plugin{Name: name})
		} else {
			result = "updated"
		}
		before := list[at]
		list[at].Path, list[at].SHA256 = path, sum
		if err := r.amend(&list[at]); err != nil {
			return nil, err
		}
		if before.SHA256 != sum || before.Path != path {
			list[at].Version = r.version(ctx, env, list[at])
		}
		if same(before, list[at]) {
			result = "already_registered"
		}
		entry = list[at]
		if env.dryRun {
			return nil, errDryRun
		}
		return list, nil
	}
	if err := config.ChangeCatalogue(catalogue, change); err != nil && !errors.Is(err, errDryRun) {
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
			return fail(exitPermission, err,
				"name a catalogue that this user may write, the same for run: --plugin-catalog FILE")
		}
		return err
	}
	if env.dryRun && result != "already_registered" {
		result = "would_be_" + result
	}
	return env.show(map[string]string{
		"plugin": name, "result": result, "path": path, "sha256": sum,
		"version": entry.Version, "catalogue": catalogue,
	}, func() listing {
		return listing{
			header: []string{"plugin", "result", "version", "sha256", "catalogue"},
			rows:   [][]any{{name, result, entry.Version, sum, catalogue}},
		}
	})
}

func same(a, b config.Plugin) bool {
	return a.Path == b.Path && a.SHA256 == b.SHA256 && a.Version == b.Version && a.Processes == b.Processes &&
		a.MemoryLimit == b.MemoryLimit &&
		a.CallTimeout == b.CallTimeout && slices.Equal(a.Env, b.Env)
}

// amend changes what flags name anew.
func (r *registerCommand) amend(p *config.Plugin) error {
	if r.processes != 0 {
		if r.processes < 1 || r.processes > host.MaxProcesses {
			return misuse("--processes: expected 1 to %d, not %d", host.MaxProcesses, r.processes)
		}
		p.Processes = r.processes
	}
	if r.memoryLimit != "" {
		limit, err := config.ParseMemory(r.memoryLimit)
		if err != nil {
			return misuse("--memory-limit: %s", err)
		}
		p.MemoryLimit = limit
	}
	if r.callTimeout != "" {
		timeout, err := config.ParseCallTimeout(r.callTimeout)
		if err != nil {
			return misuse("--call-timeout: %s", err)
		}
		p.CallTimeout = timeout
	}
	if names := r.env.Value(); len(names) > 0 {
		if err := config.CheckVariables(names); err != nil {
			return misuse("--allow-env: %s", err)
		}
		p.Env = names
	}
	return nil
}

// version starts the plugin, with the model that it would have in a pipeline that names none, and returns what it
// calls itself. One that cannot be started as things are, for want of a model or a key, is registered all the same.
func (r *registerCommand) version(ctx context.Context, env *environment, p config.Plugin) string {
	var d embed.Description
	// As if it were in the catalogue already, in the place of what may be there.
	found, err := env.config.WithRegistered([]config.Plugin{p}).Embedder(env.find, p.Name, "")
	if missing, ok := errors.AsType[*config.NotFoundError](err); ok {
		env.say("its version is not noted: the %s %q, without which it does not start, is not there yet", missing.Kind,
			missing.Name)
		return ""
	}
	if err != nil {
		env.say("its version is not noted: %s", err)
		return ""
	}
	h, err := host.New(host.Options{
		Name: p.Name, Path: p.Path, SHA256: p.SHA256, Env: found.Env, Log: env.log,
		Redact: env.redact.Text,
	})
	if err == nil {
		d, err = h.Describe(ctx)
		err = errors.Join(err, h.Close())
	}
	if err != nil {
		_, code := embed.Classify(err)
		env.say("its version is not noted, because it does not start by itself (%s): plugins info tells more", code)
		return ""
	}
	return d.Version
}

func newPluginsRemove() *command {
	return &command{
		name: "remove", group: groupPlugins, usage: "take a plugin out of the catalogue; its file stays",
		arguments: "PLUGIN...", minArgs: 1, maxArgs: -1,
		description: "Sidecars that run go on with it until plugins reload or their end. Ends with status 9 when it does not have one of them.",
		settings:    []string{config.GroupEmbedding}, acts: true, run: removePlugins,
	}
}

func removePlugins(_ context.Context, env *environment) error {
	type removed struct {
		Plugin string `json:"plugin"`
		Result string `json:"result"`
	}
	list := []removed{}
	var unknown, known []string
	change := func(entries []config.Plugin) ([]config.Plugin, error) {
		for _, p := range entries {
			known = append(known, p.Name)
		}
		for _, name := range env.args {
			at := slices.IndexFunc(entries, func(p config.Plugin) bool { return p.Name == name })
			switch {
			case at < 0:
				list, unknown = append(list, removed{name, "not_registered"}), append(unknown, name)
				continue
			case env.dryRun:
				list = append(list, removed{name, "would_be_removed"})
			default:
				list = append(list, removed{name, "removed"})
			}
			entries = slices.Delete(entries, at, at+1)
		}
		if env.dryRun {
			return nil, errDryRun
		}
		return entries, nil
	}
	catalogue := env.find.Catalogue(env.config)
	if _, err := os.Stat(catalogue); errors.Is(err, os.ErrNotExist) {
		_, _ = change(nil) // nothing to take out, and no file to make for that
	} else if err := config.ChangeCatalogue(catalogue, change); err != nil && !errors.Is(err, errDryRun) {
		return err
	}
	err := env.show(map[string][]removed{"plugins": list}, func() listing {
		l := listing{header: []string{"plugin", "result"}}
		for _, r := range list {
			l.rows = append(l.rows, []any{r.Plugin, r.Result})
		}
		return l
	})
	if len(unknown) == 0 {
		return err
	}
	hint := "the catalogue is empty"
	if len(known) > 0 {
		hint = "it has: " + strings.Join(known, ", ")
	}
	return errors.Join(err, fail(exitNoMatch, fmt.Errorf("not in the catalogue %s: %s", catalogue,
		strings.Join(unknown, ", ")), hint))
}
