package main

import "context"

// statusCommand shows where every pipeline stands.
type statusCommand struct{}

func newStatus() *command {
	c := &statusCommand{}
	return &command{
		name: "status", group: groupObserve, usage: "show where every pipeline stands",
		description: "Asks the database only, so it also works while no sidecar runs.",
		settings:    databaseGroups,
		run:         c.run,
	}
}

func (c *statusCommand) run(_ context.Context, _ *environment) error { return notWired("status") }
