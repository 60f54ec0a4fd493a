package main

import (
	"context"
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
)

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
		settings: []string{config.GroupDatabase, config.GroupEmbedding, config.GroupOps}, run: reloadPlugins,
		reach: allDatabases,
	}
}

// which tells the database that was named; "": none was.
func (e *environment) which(ctx context.Context) (string, error) {
	if e.config.Several() || !e.config.NamesDatabase(e.environ) {
		return "", nil
	}
	pool, err := e.connect(ctx)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	return database.Which(ctx, pool)
}

func reloadPlugins(ctx context.Context, env *environment) error {
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
}
