package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/node/folders"
)

// benchCommand measures a model on this machine.
type benchCommand struct {
	limit     time.Duration
	precision string
}

func newModelsBench() *command {
	c := &benchCommand{}
	return &command{
		name: "bench", group: groupModels, usage: "measure how fast a model is here", arguments: "[MODEL]", maxArgs: 1,
		description: "Embeds sample texts through the plugin " + folders.Plugin() +
			": in large calls for half of the time, then one by one. Texts have one to twenty sentences. Other work on this machine shows in the figures.",
		flags: []cli.Flag{
			&cli.DurationFlag{
				Name: "for", Destination: &c.limit, Value: 10 * time.Second,
				Usage: "`DURATION` of the measurement",
			},
			&cli.StringFlag{
				Name: "precision", Destination: &c.precision,
				Usage: "`PRECISION` fp32, or int8 for a model that was imported with --int8",
			},
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *benchCommand) run(ctx context.Context, env *environment) error {
	if c.limit <= 0 {
		return misuse("--for: expected a duration of more than nothing")
	}
	b, err := env.models().Bench(ctx, env.model(), c.precision, c.limit)
	if err != nil {
		return err
	}
	return env.show(b, func() listing {
		return listing{
			header: []string{"model", "precision", "texts/s", "tokens/s", "one text, p50 ms", "p99 ms", "start s"},
			right:  []int{2, 3, 4, 5, 6},
			rows: [][]any{{
				b.Model, b.Precision, b.TextsPerSecond, b.TokensPerSecond, b.SingleP50, b.SingleP99,
				b.StartSeconds,
			}},
		}
	})
}
