package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

// drainCommand waits until pipelines have nothing left to embed.
type drainCommand struct{ all bool }

func newDrain() *command {
	c := &drainCommand{}
	return &command{
		name: "drain", group: groupOperate, usage: "wait until pipelines have nothing left to embed, and tell what is left",
		arguments: "PIPELINE... | --all", maxArgs: -1,
		description: "Waits for what was committed before it began, backfills included; changes that come meanwhile are not waited for, and nothing is held up. Of a pipeline that is paused it waits for what is in work, says that it is paused and how many rows are left, and ends with status 4, as it does where rows failed or were cancelled. With --timeout it ends after that with status 5; with --timeout 0 it waits for nothing, and tells what is left now.",
		flags: []cli.Flag{
			own.toggle("all", &c.all, "all pipelines"),
		},
		settings: databaseGroups, run: c.run,
	}
}

func (c *drainCommand) run(ctx context.Context, env *environment) error {
	switch {
	case c.all && len(env.args) > 0:
		return misuse("--all and names of pipelines exclude each other")
	case !c.all && len(env.args) == 0:
		return misuse("what to drain is missing: names of pipelines, or --all")
	}
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	list, err := caughtup.Drain{
		Pool: pool, Names: env.args, Once: env.lookOnce, Tell: func(what string) { env.say("draining: %s", what) },
	}.Run(ctx)
	if len(list) == 0 {
		return err
	}
	columns := []string{"pipeline", "result", ">left", ">failed", ">cancelled", ">elapsed", "note"}
	return errors.Join(output.List(env.out, "pipelines", list, columns, func(d *caughtup.Drained) []any {
		return []any{d.Pipeline, d.Result, d.Rows, d.Failed, d.Cancelled, fmt.Sprintf("%.1f s", d.Seconds), d.Note}
	}), err)
}
