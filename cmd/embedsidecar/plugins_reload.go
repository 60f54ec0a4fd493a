package main

import (
	"context"
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node/registry"
	"github.com/embedsidecar/embedsidecar/internal/output"
)

func newPluginsReload() *command {
	return &command{
		name: "reload", group: groupPlugins,
		usage: "have running sidecars move to a plugin's file and model as they are now", arguments: "[PLUGIN...]",
		maxArgs:     -1,
		description: "Without a name it reloads all. New processes start beside the old ones; they must describe the same fingerprint and give the same vectors; then they take over, and no row fails. Otherwise everything stays as it is, and the reason is told. It reaches the sidecars of this user on this machine; others do the same at SIGHUP.",
		settings:    []string{config.GroupEmbedding, config.GroupOps}, run: reloadPlugins,
	}
}

func reloadPlugins(ctx context.Context, env *environment) error {
	list, err := env.plugins().Reload(ctx, env.args)
	if list == nil {
		return err
	}
	columns := []string{"sidecar", ">pid", "plugin", "model", "result"}
	return errors.Join(output.List(env.out, "plugins", list, columns, func(r *registry.Reloaded) []any {
		return []any{r.Sidecar, r.Pid, r.Plugin, r.Model, r.Result}
	}), err)
}
