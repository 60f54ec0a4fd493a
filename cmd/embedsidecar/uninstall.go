package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"
)

// uninstallCommand takes away what init made.
type uninstallCommand struct {
	dropEmbeddings bool // the vectors too
}

func newUninstall() *command {
	c := &uninstallCommand{}
	return &command{
		name: "uninstall", group: groupAdmin, usage: "take away slot, publication and schema; keeps the vectors unless told",
		description: "Shows what it would take away; --yes does it.",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "drop-embeddings", Destination: &c.dropEmbeddings, DisableDefaultText: true, Usage: "take away embedding tables and columns that init made, with all vectors in them"},
		},
		settings: databaseGroups,
		acts:     true,
		run:      c.run,
	}
}

func (c *uninstallCommand) run(_ context.Context, _ *environment) error {
	return errors.New("not there yet")
}
