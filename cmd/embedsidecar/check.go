package main

import (
	"context"
	"errors"

	"github.com/embedsidecar/embedsidecar/config"
)

// checkCommand looks for what keeps pipelines from working, now or later.
type checkCommand struct{}

func newCheck() *command {
	c := &checkCommand{}
	return &command{
		name: "check", aliases: []string{"doctor"}, group: groupStart, usage: "tell what works, what does not, and the way out",
		description: "Changes nothing. Ends with status 4 when something would not work.",
		settings:    []string{config.GroupDatabase, config.GroupEmbedding},
		pipelines:   true,
		run:         c.run,
	}
}

func (c *checkCommand) run(_ context.Context, _ *environment) error {
	return errors.New("not there yet")
}
