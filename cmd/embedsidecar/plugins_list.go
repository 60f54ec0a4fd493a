package main

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
)

// catalogue is the plugins that can be named.
func (e *environment) plugins() registry.Registry { return registry.Of(e.embedders()) }

func newPluginsList() *command {
	return &command{
		name: "list", group: groupPlugins, usage: "list the plugins that can be named, and their running processes",
		description: "Lists the plugins of the configuration file and of the catalog, and the programs in the folder of " +
			"plugins. STATE says whether the file is the pinned one; RUNNING counts the processes in the " +
			"sidecars of this user on this machine. For finding out what runs.",
		settings: []string{config.GroupEmbedding}, run: listPlugins,
	}
}

func listPlugins(ctx context.Context, env *environment) error {
	list, err := env.plugins().List(ctx)
	if err != nil {
		return err
	}
	columns := []string{"plugin", "version", "pinned", "state", ">running", "circuit", "path"}
	return output.List(env.out, "plugins", list, columns, func(k *registry.Known) []any {
		return []any{k.Plugin, k.Version, k.Pinned, k.State, k.Running, k.Circuit, k.Path}
	})
}

func newPluginsInfo() *command {
	return &command{
		name: "info", group: groupPlugins, usage: "start a plugin and print its description",
		arguments: "PLUGIN [MODEL]", minArgs: 1, maxArgs: 2,
		description: "PLUGIN is a name or the path of a program. Without MODEL it is the model that a pipeline would get, " +
			"or the plugin's only one. For trying a plugin without a database.",
		settings: []string{config.GroupEmbedding}, run: pluginInfo,
	}
}

func pluginInfo(ctx context.Context, env *environment) error {
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
}
