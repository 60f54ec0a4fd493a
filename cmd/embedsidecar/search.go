package main

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
)

// searchCommand finds the rows nearest to a text.
type searchCommand struct {
	limit int
}

// maxLimit keeps a slip of the finger from asking for the whole table.
const maxLimit = 10000

func newSearch() *command {
	c := &searchCommand{}
	return &command{
		name: "search", group: groupSearch, usage: "find the rows of a pipeline that are nearest to a text", arguments: "PIPELINE TEXT", minArgs: 2, maxArgs: 2,
		description: "Embeds the text with the pipeline's own model, so it cannot be the wrong one.",
		flags: []cli.Flag{
			&cli.IntFlag{Name: "k", Destination: &c.limit, Value: 10, Usage: "`N` rows at most"},
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *searchCommand) run(ctx context.Context, env *environment) error {
	if c.limit < 1 || c.limit > maxLimit {
		return misuse("-k: expected a number from 1 to %d, not %d", maxLimit, c.limit)
	}
	if strings.TrimSpace(env.args[1]) == "" {
		return misuse("the text to search for is empty")
	}
	return c.search(ctx, env, env.args[0], env.args[1])
}

func (c *searchCommand) search(_ context.Context, _ *environment, _, _ string) error {
	return errors.New("not there yet")
}
