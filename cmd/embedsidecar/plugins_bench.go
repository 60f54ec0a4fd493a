package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
)

// pluginsBenchCommand measures how fast a plugin is through its host.
type pluginsBenchCommand struct {
	env  cli.StringSlice
	each time.Duration
}

func newPluginsBench() *command {
	c := &pluginsBenchCommand{each: 2 * time.Second}
	return &command{
		name: "bench", group: groupPlugins, usage: "measure how fast a plugin is", arguments: "PLUGIN", minArgs: 1,
		maxArgs: 1,
		description: "Sends sample texts (20 to 280 bytes, mixed) through the host, one call after the other. Shows texts " +
			"per second and the time of a call, by texts per call. The first calls are not counted. Needs no " +
			"database. For sizing, and for finding out whether an embedder became slower.",
		flags: []cli.Flag{
			pluginVariables(&c.env),
			own.duration("each", &c.each, "`DURATION` how long each size is measured"),
		},
		settings: []string{config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *pluginsBenchCommand) run(ctx context.Context, env *environment) error {
	if c.each <= 0 {
		return misuse("--each: expected a duration above zero")
	}
	plugin, err := env.pluginUnderTest(c.env.Value())
	if err != nil {
		return err
	}
	done, err := plugin.Bench(ctx, c.each)
	if err != nil {
		return err
	}
	columns := []string{">texts a call", ">texts/s", ">us/text", ">p50 ms", ">p99 ms", ">calls"}
	return env.out.Show(done, func() output.Table {
		return output.Rows(done.Speeds, columns, func(s *conformance.Speed) []any {
			return []any{
				s.Batch, fmt.Sprintf("%.0f", s.TextsPerSecond), fmt.Sprintf("%.1f", 1e6/s.TextsPerSecond),
				fmt.Sprintf("%.2f", s.P50Milliseconds), fmt.Sprintf("%.2f", s.P99Milliseconds), s.Calls,
			}
		})
	})
}
