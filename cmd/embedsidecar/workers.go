package main

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

func newWorkersList() *command {
	return &command{
		name: "list", group: groupObserve, usage: "list the sidecars of this database, with their work of the last 24 hours",
		description: "Includes those that ended a short while ago. PROCESSED is how many rows a sidecar finished or gave " +
			"up, up to a minute ago. LAST RUN is when its last batch ended. For several sidecars.",
		settings: databaseGroups, run: listWorkers,
	}
}

func listWorkers(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := catalog.CheckVersion(ctx, pool); err != nil {
		return err
	}
	list, err := report.Workers(ctx, pool)
	if err != nil {
		return err
	}
	columns := []string{
		"instance", "host", "role", "version", "state", ">working on", ">processed", ">succeeded", ">failed", "last run",
		">seen",
	}
	return output.List(env.out, "workers", append([]report.Worker{}, list...), columns, func(w *report.Worker) []any {
		state, last := "ended", "-"
		if w.Runs {
			state = string(w.Stream)
		}
		if w.LastBatchAt != nil {
			last = w.LastBatchAt.UTC().Format(time.DateTime)
		}
		return []any{
			w.Instance, w.Host, w.Role, w.Version, state, w.Leased, w.Processed, w.Succeeded, w.GivenUp, last,
			wording.Age(w.SeenSecondsAgo) + " ago",
		}
	})
}
