package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/folders"
)

// benchCommand measures a model on this machine.
type benchCommand struct {
	limit     time.Duration
	precision string
}

func newModelsBench() *command {
	c := &benchCommand{limit: 10 * time.Second}
	return &command{
		name: "bench", group: groupModels, usage: "measure how fast a model is on this machine",
		arguments: "[MODEL]", maxArgs: 1,
		description: "Embeds sample texts of one to twenty sentences through the plugin " +
			folders.Plugin() +
			": in large calls for half of the time, then one by one. Other load on this machine affects the " +
			"figures. For sizing.",
		flags: []cli.Flag{
			own.duration("for", &c.limit, "`DURATION` of the measurement"),
			own.text("precision", &c.precision, "`PRECISION` fp32, or int8 for a model that was imported with --int8"),
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
	columns := []string{"model", "precision", ">texts/s", ">tokens/s", ">one text, p50 ms", ">p99 ms", ">start s"}
	return env.out.Show(b, func() output.Table {
		return output.Row(columns, b.Model, b.Precision, b.TextsPerSecond, b.TokensPerSecond, b.SingleP50, b.SingleP99,
			b.StartSeconds)
	})
}
