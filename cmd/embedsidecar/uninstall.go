package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/uninstall"
	"github.com/embedsidecar/embedsidecar/queue"
)

// uninstallCommand takes away what init made.
type uninstallCommand struct {
	dropEmbeddings bool // the vectors too
}

func newUninstall() *command {
	c := &uninstallCommand{}
	return &command{
		name: "uninstall", group: groupAdmin, usage: "take away slot, publication and schema; keeps the vectors unless told",
		arguments: "[PIPELINE]", maxArgs: 1,
		description: "Prints the SQL that it would run; --yes runs it. With the name of a pipeline it takes away that one only, and all the others go on.",
		flags: []cli.Flag{
			&cli.BoolFlag{
				Name: "drop-embeddings", Destination: &c.dropEmbeddings, DisableDefaultText: true,
				Usage: "take away embedding tables and columns that init made, with all vectors in them, also those that an earlier uninstall left",
			},
		},
		settings: databaseGroups,
		acts:     true,
		run:      c.run,
	}
}

func (c *uninstallCommand) run(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	server, err := env.connections().Server(ctx, pool, connection.Few)
	if err != nil {
		return err
	}
	defer server.Close()
	dry := !env.yes
	var done uninstall.Removed
	if len(env.args) > 0 {
		name := env.args[0]
		if all, err := lookup.All(ctx, pool); err == nil {
			if at := lookup.Meant(all, name); at >= 0 {
				name = all[at].Name
			}
		}
		done, err = uninstall.Pipeline(ctx, uninstall.PipelineOptions{
			Pool: server, Pipeline: name, Embedding: c.dropEmbeddings,
			DryRun: dry, Log: env.log,
		})
		if err == nil && !dry {
			if _, left := queue.DropLeftovers(ctx, server); left != nil {
				env.say("its tasks and its ledger go later: a sidecar that runs takes them away (%s)", left)
			}
		}
	} else {
		done, err = uninstall.All(ctx, uninstall.Options{
			Pool: server, Embeddings: c.dropEmbeddings, DryRun: dry,
			Log: env.log,
		})
	}
	if _, nothing := errors.AsType[*refusal.NotSetUpError](err); nothing {
		env.say("nothing to take away: the database is not set up")
		err = nil
	}
	if len(done.Kept) > 0 && err == nil {
		later := "now or later"
		if len(env.args) > 0 { // nothing but a comment on them tells later whose they were
			later = "now; later the same call prints the statement for it"
		}
		env.say("vectors stay in %s: --drop-embeddings takes them away, too, %s", strings.Join(done.Kept, ", "), later)
	}
	return errors.Join(c.show(env, done.SQL, dry), err)
}

func (c *uninstallCommand) show(env *environment, done []string, dry bool) error {
	if env.output != "table" {
		type answer struct {
			DryRun bool     `json:"dry_run"`
			SQL    []string `json:"sql"`
		}
		return env.show(answer{dry, append([]string{}, done...)}, func() listing {
			l := listing{header: []string{"sql"}}
			for _, sql := range done {
				l.rows = append(l.rows, []any{sql})
			}
			return l
		})
	}
	if len(done) == 0 {
		return nil
	}
	if err := env.printf("%s\n", strings.Join(done, "\n")); err != nil {
		return err
	}
	if dry {
		env.say("nothing was done: --yes does it")
	}
	return nil
}
