package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/indexes"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
)

// indexesEvery is how often it is looked whether a backfill is done whose index is to be built.
const indexesEvery = 5 * time.Second

// keepIndexes builds the indexes that the configuration asks for as soon as their backfills are done, while the
// sidecar works. When all are there it asks nothing any more. The function it returns ends that.
func keepIndexes(ctx context.Context, env *environment, pool, direct *pgxpool.Pool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			finished, err := buildIndexes(ctx, env, pool, direct)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				env.log.WarnContext(ctx, "index not built yet", "error", err)
			}
			if finished && err == nil {
				return
			}
			if !sleep.For(ctx, indexesEvery) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// buildIndexes builds what can be built now. It reports whether nothing is left to wait for.
func buildIndexes(ctx context.Context, env *environment, pool, direct *pgxpool.Pool) (finished bool, err error) {
	if !slices.ContainsFunc(env.config.Pipelines, func(s pipeline.Spec) bool { return s.Index != "" }) {
		return true, nil
	}
	known, err := lookup.Stored(ctx, pool, env.config.Slot.Name)
	if err != nil {
		return false, err
	}
	finished = true
	var problems []error
	for _, spec := range lookup.Configured(env.config, known) {
		at := lookup.Find(known, spec.Name)
		if spec.Index == "" || at < 0 || known[at].Status != pipeline.Active {
			continue
		}
		began := time.Now()
		state, statements, err := indexes.Build(ctx, direct, &known[at])
		switch {
		case err != nil:
			problems = append(problems, err)
		case state == indexes.Waits:
			finished = false
		case state == indexes.Built:
			env.log.InfoContext(ctx, "index built", "pipeline", spec.Name, "took_seconds", time.Since(began).Seconds())
		case state == indexes.Refused:
			env.log.WarnContext(ctx, "index left to the owner of the table, as this role is not", "pipeline", spec.Name, "sql",
				strings.Join(statements, " "))
		}
	}
	return finished, errors.Join(problems...)
}
