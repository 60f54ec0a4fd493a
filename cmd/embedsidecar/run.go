package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
)

// runCommand streams changes and embeds rows until it is told to stop.
type runCommand struct {
	once   bool // catch up with everything committed before the start, then end
	noInit bool // set nothing up
}

func newRun() *command {
	c := &runCommand{}
	return &command{
		name: "run", group: groupStart, usage: "embed rows as they change, until told to stop",
		description: "Sets up what is missing if the role may (schema, publication, slot, destination) and prints what it made and how to undo it. If the role may not, prints the SQL for an owner to run and ends with status 7. SIGTERM and SIGINT end it in order: what is being embedded is finished or given back; a second signal ends it at once.",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "once", Destination: &c.once, DisableDefaultText: true, Usage: "catch up with all that is committed now, then end"},
			&cli.BoolFlag{Name: "no-init", Destination: &c.noInit, DisableDefaultText: true, Usage: "set nothing up; end with status 3 when something is missing"},
		},
		settings:  []string{config.GroupDatabase, config.GroupEmbedding, config.GroupWork, config.GroupOps},
		pipelines: true,
		daemon:    true,
		run:       c.run,
	}
}

func (c *runCommand) run(_ context.Context, _ *environment) error { return notWired("run") }
