package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/app"
	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
)

func newUninstall() *command {
	dropEmbeddings := false // remove the vectors, too
	return &command{
		name: "uninstall", group: groupAdmin,
		usage:     "remove slot, publication and schema, or one pipeline; vectors stay by default",
		arguments: "[PIPELINE]", maxArgs: 1,
		description: "Prints the SQL that it would run; --yes runs it. With the name of a pipeline, only that pipeline is " +
			"removed. For leaving, and for pipelines that are no longer used.",
		flags: []cli.Flag{
			own.toggle("drop-embeddings", &dropEmbeddings,
				"remove embedding tables and columns that init made, with all vectors in them, and those that an earlier uninstall left"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding}, // batch jobs are cancelled with their models
		acts:     true,
		run: func(ctx context.Context, env *environment) error {
			o := app.TakeAwayOptions{All: len(env.args) == 0, Embeddings: dropEmbeddings, DryRun: !env.yes}
			if !o.All {
				o.Pipeline = env.args[0]
			}
			done, err := app.TakeAway(ctx, env.node(), o, func(what string) { env.say("%s", what) })
			if done == nil {
				return err
			}
			return errors.Join(showRemoved(env, done, o.DryRun), err)
		},
	}
}

func showRemoved(env *environment, done []string, dry bool) error {
	if !env.out.ForPeople() {
		type answer struct {
			DryRun bool     `json:"dry_run"`
			SQL    []string `json:"sql"`
		}
		return output.Each(env.out, answer{dry, done}, done, []string{"sql"}, func(sql *string) []any { return []any{*sql} })
	}
	if len(done) == 0 {
		return nil
	}
	if err := env.printf("%s\n", strings.Join(done, "\n")); err != nil {
		return err
	}
	if dry {
		env.say("nothing was changed: run it with --yes")
	} else {
		env.say("removed, by these statements")
	}
	return nil
}
