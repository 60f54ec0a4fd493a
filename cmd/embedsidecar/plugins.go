package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
)

// plugins returns the plugins that can be named.
func (e *environment) plugins() registry.Registry { return registry.Of(e.embedders()) }

func newPluginsList() *command {
	return &command{
		name: "list", group: groupPlugins, usage: "list the plugins that can be named, and their running processes",
		description: "Lists the plugins of the configuration file and of the catalog, and the programs in the folder of " +
			"plugins. STATE says whether the file is the pinned one; RUNNING counts the processes in the " +
			"sidecars of this user on this machine. For finding out what runs.",
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
			list, err := env.plugins().List(ctx)
			if err != nil {
				return err
			}
			columns := []string{"plugin", "version", "pinned", "state", ">running", "circuit", "path"}
			return output.List(env.out, "plugins", list, columns, func(k *registry.Known) []any {
				return []any{k.Plugin, k.Version, k.Pinned, k.State, k.Running, k.Circuit, k.Path}
			})
		},
	}
}

func newPluginsInfo() *command {
	return &command{
		name: "info", group: groupPlugins, usage: "start a plugin and print its description",
		arguments: "PLUGIN [MODEL]", minArgs: 1, maxArgs: 2,
		description: "PLUGIN is a name or the path of a program. Without MODEL it is the model that a pipeline would get, " +
			"or the plugin's only one. For trying a plugin without a database.",
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
			model := ""
			if len(env.args) > 1 {
				model = env.args[1]
			}
			d, err := env.plugins().Info(ctx, env.args[0], model)
			if err != nil {
				return err
			}
			return env.out.Show(d, func() output.Table {
				return output.Table{Columns: []string{"property", "value"}, Rows: d.Properties()}
			})
		},
	}
}

func newPluginsRegister() *command {
	var name, processes, memoryLimit, callTimeout string
	var allowed cli.StringSlice
	return &command{
		name: "register", group: groupPlugins, usage: "pin a plugin: write its SHA-256 into the catalog",
		arguments: "FILE", minArgs: 1, maxArgs: 1,
		description: "From then on pipelines can name it, and only this file is started. Registering it again pins the " +
			"file as it is now and keeps settings that are not given; running sidecars switch at plugins reload. " +
			"The catalog is a file (plugins.catalog_file); entries of the configuration file win over it. For " +
			"production.",
		flags: []cli.Flag{
			own.text("as", &name,
				"`NAME` name of the plugin (default: the file's without embedsidecar- and an ending such as .py)"),
			own.text("processes", &processes, "`N` processes for each model, 1 to 64", "1"),
			own.text("memory-limit", &memoryLimit,
				"`SIZE` memory above which a process is replaced, such as 2GiB; 0 removes the limit", "none"),
			own.text("call-timeout", &callTimeout,
				"`DURATION` time after which a call without an answer is given up and the plugin killed, plus the time that its texts add, 1s to 1h; 0 for the default", "30s, or what a remote model's timeout asks for"),
			own.list("allow-env", &allowed,
				"`NAME` name of a variable that it may see, besides EMBEDSIDECAR_PLUGIN_...; again for more"),
		},
		settings: []string{config.GroupEmbedding}, acts: true,
		run: func(ctx context.Context, env *environment) error {
			return register(ctx, env, registry.Registration{File: env.args[0], Name: name, Said: []registry.Said{
				{As: "--processes", Key: "processes", Values: []string{processes}},
				{As: "--memory-limit", Key: "memory_limit", Values: []string{memoryLimit}},
				{As: "--call-timeout", Key: "call_timeout", Values: []string{callTimeout}},
				{As: "--allow-env", Key: "env", Values: allowed.Value()},
			}, DryRun: env.dryRun})
		},
	}
}

func register(ctx context.Context, env *environment, r registry.Registration) error {
	done, err := env.plugins().Register(ctx, r)
	if done.NotNoted != "" {
		env.say("%s", done.NotNoted)
	}
	if err != nil {
		return err
	}
	return output.One(env.out, done, []string{"plugin", "result", "version", "sha256", "catalogue"},
		done.Plugin, done.Result, done.Version, done.SHA256, done.Catalogue)
}

func newPluginsRemove() *command {
	return &command{
		name: "remove", group: groupPlugins, usage: "remove a plugin from the catalog; its file stays",
		arguments: "PLUGIN...", minArgs: 1, maxArgs: -1,
		description: "Running sidecars use it until plugins reload or their end. Ends with status 9 if the catalog does " +
			"not have it. For plugins that are no longer used.",
		settings: []string{config.GroupEmbedding}, acts: true,
		run: func(_ context.Context, env *environment) error {
			list, err := env.plugins().Remove(env.args, env.dryRun)
			if list == nil {
				return err
			}
			return errors.Join(output.List(env.out, "plugins", list, []string{"plugin", "result"},
				func(r *registry.Removed) []any { return []any{r.Plugin, r.Result} }), err)
		},
	}
}

func newPluginsReload() *command {
	return &command{
		name: "reload", group: groupPlugins,
		usage: "switch running sidecars to the current file and model of a plugin", arguments: "[PLUGIN...]",
		maxArgs: -1,
		description: "Without a name it reloads all plugins. New processes start beside the old ones. If they have the " +
			"same fingerprint and return the same vectors, they take over and no row fails; otherwise nothing " +
			"changes and the reason is printed. Reaches the sidecars of this user on this machine; if a database " +
			"is named, only those that work for it. Others reload at SIGHUP. For a new build of a plugin, or a " +
			"new copy of a model.",
		settings: []string{config.GroupDatabase, config.GroupEmbedding, config.GroupOps},
		run: func(ctx context.Context, env *environment) error {
			which, err := env.which(ctx)
			if err != nil {
				return err
			}
			list, err := env.plugins().Reload(ctx, env.args, which)
			if list == nil {
				return err
			}
			columns := []string{"sidecar", ">pid", "plugin", "model", "result"}
			return errors.Join(output.List(env.out, "plugins", list, columns, func(r *registry.Reloaded) []any {
				return []any{r.Sidecar, r.Pid, r.Plugin, r.Model, r.Result}
			}), err)
		},
		reach: allDatabases,
	}
}

// which returns the identity of the database that was named; "": none was.
func (e *environment) which(ctx context.Context) (which string, err error) {
	if e.config.Several() || !e.config.NamesDatabase(e.environ) {
		return "", nil
	}
	err = e.connected(ctx, func(pool *pgxpool.Pool) (err error) { which, err = database.Which(ctx, pool); return err })
	return which, err
}

func newPluginsVerify() *command {
	return &command{
		name: "verify", group: groupPlugins,
		usage: "compare plugins with their pins, start them, and check that they answer in order", arguments: "[PLUGIN...]",
		maxArgs: -1,
		description: "Without a name it checks every pinned plugin. Changes nothing. Ends with status 4 if something is " +
			"wrong. For a plugin that is down.",
		settings: []string{config.GroupEmbedding},
		run: func(ctx context.Context, env *environment) error {
			list, err := env.plugins().Verify(ctx, env.args)
			if list == nil {
				return err
			}
			if len(list) == 0 {
				env.say("no plugin is pinned: embedsidecar plugins register FILE")
			}
			columns := []string{"plugin", "result", "detail"}
			return errors.Join(output.List(env.out, "plugins", list, columns, func(v *registry.Verdict) []any {
				return []any{v.Plugin, v.Result, v.Detail}
			}), err)
		},
	}
}
