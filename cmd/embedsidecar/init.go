package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
)

// initCommand sets up what pipelines need.
type initCommand struct {
	showSQL bool // print the statements for somebody else to run
}

func newInit() *command {
	c := &initCommand{}
	return &command{
		name: "init", group: groupStart, usage: "set up schema, publication, slot and destinations",
		description: "Needs the owner of the source tables, not a superuser. What is there already stays; doing it twice does no harm. Each thing made is printed with the SQL to undo it. --dry-run tells what would be done.",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "show-sql", Destination: &c.showSQL, DisableDefaultText: true, Usage: "print the SQL that would be run, and run nothing"},
		},
		settings:  []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines: true,
		acts:      true,
		run:       c.run,
	}
}

func (c *initCommand) run(_ context.Context, _ *environment) error { return notWired("init") }
