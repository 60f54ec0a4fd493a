package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
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
	pool, pipelines, err := env.aim(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	list := []acted{}
	for i := range pipelines {
		args := pgx.StrictNamedArgs{"pipeline_ids": []int32{pipelines[i].ID}, "reason": "asked for"}
		if _, err := turn(ctx, env, pool, sqlfiles.Query("request_scan"), args); err != nil {
			return err
		}
		a := acted{Pipeline: pipelines[i].Name, Result: "scan_requested"}
		if env.dryRun {
			a.Result = "scan_would_be_requested"
		}
		list = append(list, a)
	}
	return env.showActed(list)
}
