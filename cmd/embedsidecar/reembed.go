package main

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/node/actions"
)

// reembedCommand has vectors made anew.
type reembedCommand struct{}

func newReembed() *command {
	c := &reembedCommand{}
	return &command{
		name: "reembed", group: groupOperate, usage: "embed rows anew though their texts are what they were",
		arguments: "PIPELINE [KEY...]", minArgs: 1, maxArgs: -1,
		description: "For vectors that are not believed any more. Every row of the pipeline, or these rows alone, are sent to the embedder again: nothing that is stored or remembered is taken instead. The vectors stay where they are until the new ones come. It happens when a sidecar runs; embedsidecar wait --caught-up waits for it. --dry-run tells how many rows there are.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func (c *reembedCommand) run(ctx context.Context, env *environment) error {
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	outcome, err := a.Reembed(ctx, env.args[0], env.args[1:], env.dryRun)
	if err != nil {
		return err
	}
	return env.showOutcomes([]actions.Outcome{outcome})
}
