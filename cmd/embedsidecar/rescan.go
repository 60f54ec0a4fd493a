package main

import (
	"context"
)

// rescanCommand has every row compared.
type rescanCommand struct{}

func newRescan() *command {
	c := &rescanCommand{}
	return &command{
		name: "rescan", group: groupOperate, usage: "compare every row with what was written for it",
		arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Asks for the comparison that a lost slot or an altered table brings by itself. Only rows that differ are embedded. It begins when a sidecar runs; embedsidecar status shows how far it is.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func (c *rescanCommand) run(ctx context.Context, env *environment) error {
	a, done, err := env.actions(ctx)
	if err != nil {
		return err
	}
	defer done()
	list, err := a.Rescan(ctx, env.args, env.dryRun)
	if err != nil {
		return err
	}
	return env.showOutcomes(list)
}
