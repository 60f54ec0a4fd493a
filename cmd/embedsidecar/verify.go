package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
)

// verifyCommand proves that vectors are those of the rows.
type verifyCommand struct {
	deep int // rows to embed again
}

func newVerify() *command {
	c := &verifyCommand{}
	return &command{
		name: "verify", group: groupObserve, usage: "prove that every vector is that of its row's text", arguments: "[PIPELINE...]", maxArgs: -1,
		description: "Compares the hash of every row's text with that of its vector, and with --deep embeds a sample again. Ends with status 4 when anything is missing, stale or orphaned.",
		flags: []cli.Flag{
			&cli.IntFlag{Name: "deep", Destination: &c.deep, Usage: "`N` rows of each pipeline are embedded again and their vectors compared", DefaultText: "0"},
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *verifyCommand) run(ctx context.Context, env *environment) error {
	if c.deep < 0 {
		return misuse("--deep: expected a number that is not negative, not %d", c.deep)
	}
	return c.verify(ctx, env)
}

func (c *verifyCommand) verify(_ context.Context, _ *environment) error { return notWired("verify") }
