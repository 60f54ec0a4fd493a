package main

import (
	"context"
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/registry"
)

func newPluginsVerify() *command {
	return &command{
		name: "verify", group: groupPlugins,
		usage: "compare plugins with their pins, start them, and check that they answer in order", arguments: "[PLUGIN...]",
		maxArgs: -1,
		description: "Without a name it checks every pinned plugin. Changes nothing. Ends with status 4 if something is " +
			"wrong. For a plugin that is down.",
		settings: []string{config.GroupEmbedding}, run: verifyPlugins,
	}
}

func verifyPlugins(ctx context.Context, env *environment) error {
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
}
