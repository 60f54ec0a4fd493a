package main

import (
	"context"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

func newCacheStats() *command {
	return &command{
		name: "stats", group: groupObserve,
		usage: "show how many texts needed no embedder, for each model in running sidecars",
		description: "Asks the sidecars of this user on this machine. HITS are texts answered without the embedder: their " +
			"vector was cached, stored in a destination, or being computed for another row. MISSES were sent to " +
			"it. Counts start with the sidecar. For choosing workers.cache_bytes.",
		settings: []string{config.GroupOps}, run: cacheStats,
	}
}

func cacheStats(ctx context.Context, env *environment) error {
	sidecars, err := control.Find(ctx, env.config.ControlFolder())
	if err != nil {
		return err
	}
	list := control.Caches(sidecars)
	if len(sidecars) == 0 {
		env.say("no sidecar of this user runs here (looked in %s)", env.config.ControlFolder())
	}
	columns := []string{
		"sidecar", "plugin", "model", ">hits", ">misses", ">hit rate", ">entries", ">used", ">limit",
	}
	return output.List(env.out, "caches", list, columns, func(c *control.SidecarCache) []any {
		return []any{
			c.Sidecar, c.Plugin, c.Model, c.Hits, c.Misses, wording.Percent(c.HitRate), c.Entries, wording.Size(c.Bytes),
			wording.Size(c.Limit),
		}
	})
}
