package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
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
		name: "register", group: groupPlugins, usage: "pin a plugin: write its SHA-256 into the catalog",
		arguments: "FILE", minArgs: 1, maxArgs: 1,
		description: "From then on pipelines can name it, and only this file is started. Registering it again pins the " +
			"file as it is now and keeps settings that are not given; running sidecars switch at plugins reload. " +
			"The catalog is a file (plugins.catalog_file); entries of the configuration file win over it. For " +
			"production.",
		flags: []cli.Flag{
			own.text("as", &c.name,
				"`NAME` of the plugin (default: the file's without embedsidecar- and an ending such as .py)"),
			own.number("processes", &c.processes, "`N` processes for each model, 1 to 64", "1"),
			own.text("memory-limit", &c.memoryLimit,
				"`SIZE` of memory above which a process is replaced, such as 2GiB; 0 takes the limit away", "none"),
			own.text("call-timeout", &c.callTimeout,
				"`DURATION` after which a call without an answer is given up and the plugin killed, beside what its texts add, 1s to 1h; 0 for what is usual", "30s, or what a remote model's timeout asks for"),
			own.list("allow-env", &c.env,
				"`NAME` of a variable that it may see, beside EMBEDSIDECAR_PLUGIN_...; again for more"),
		},
		settings: []string{config.GroupEmbedding}, acts: true, run: c.run,
	}
}

func (r *registerCommand) run(ctx context.Context, env *environment) error {
	done, err := env.plugins().Register(ctx, registry.Registration{
		File: env.args[0], Name: r.name, Processes: r.processes, MemoryLimit: r.memoryLimit, CallTimeout: r.callTimeout,
		Env: r.env.Value(), DryRun: env.dryRun, Names: registry.Names{
			Processes: "--processes", MemoryLimit: "--memory-limit", CallTimeout: "--call-timeout", Env: "--allow-env",
		},
	})
	if done.NotNoted != "" {
		env.say("%s", done.NotNoted)
	}
	if err != nil {
		return err
	}
	return env.out.Show(done, func() output.Table {
		return output.Row([]string{"plugin", "result", "version", "sha256", "catalogue"},
			done.Plugin, done.Result, done.Version, done.SHA256, done.Catalogue)
	})
}

func newPluginsRemove() *command {
	return &command{
		name: "remove", group: groupPlugins, usage: "remove a plugin from the catalog; its file stays",
		arguments: "PLUGIN...", minArgs: 1, maxArgs: -1,
		description: "Running sidecars use it until plugins reload or their end. Ends with status 9 if the catalog does " +
			"not have it. For plugins that are no longer used.",
		settings: []string{config.GroupEmbedding}, acts: true, run: removePlugins,
	}
}

func removePlugins(_ context.Context, env *environment) error {
	list, err := env.plugins().Remove(env.args, env.dryRun)
	if list == nil {
		return err
	}
	return errors.Join(output.List(env.out, "plugins", list, []string{"plugin", "result"},
		func(r *registry.Removed) []any { return []any{r.Plugin, r.Result} }), err)
}
