package main

import (
	"context"
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/worker"
)

// reembedCommand has vectors made anew.
type reembedCommand struct{}

func newReembed() *command {
	c := &reembedCommand{}
	return &command{
		name: "reembed", group: groupOperate, usage: "embed rows anew though their texts are what they were",
		arguments: "PIPELINE [KEY...]", minArgs: 1, maxArgs: -1,
		description: "For vectors that are not believed any more. Every row of the pipeline, or these rows alone, are sent to the embedder again: nothing that is stored or remembered is taken instead. The vectors stay where they are until the new ones come. It happens when a sidecar runs; embedsidecar wait --caught-up waits for it. --dry-run tells how many rows there are.",
		settings:    databaseGroups, acts: true, run: c.run,
	}
}

func (c *reembedCommand) run(ctx context.Context, env *environment) error {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	pipelines, err := lookup.Named(ctx, pool, env.args[:1])
	if err != nil {
		return err
	}
	if err := env.tellUnknown(ctx, pool, &pipelines[0], env.args[1:]); err != nil {
		return err
	}
	n, err := anew(ctx, env, pool, &pipelines[0], env.args[1:])
	if err != nil {
		return err
	}
	a := acted{Pipeline: pipelines[0].Name, Result: "reembed_requested", Rows: n}
	switch {
	case n == 0:
		a.Result = "nothing_to_reembed"
	case env.dryRun:
		a.Result = "reembed_would_be_requested"
	}
	return env.showActed([]acted{a})
}

// anew has rows embedded anew, or every row without keys, and tells how many have a vector; a dry run only counts.
func anew(ctx context.Context, env *environment, pool *pgxpool.Pool, p *pipeline.Pipeline, keys []string) (n int64,
	err error,
) {
	if len(keys) == 0 {
		keys = nil
	}
	if env.dryRun {
		err = pool.QueryRow(ctx, "SELECT count(*) FROM embedsidecar.ledger WHERE pipeline_id = $1 AND text_hash IS NOT NULL AND ($2::text[] IS NULL OR row_key = ANY ($2))", p.ID, keys).Scan(&n)
	} else {
		n, err = worker.Anew(ctx, pool, p, keys)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		err = fail(exitPermission, err, "use the role that owns the schema embedsidecar, the one that ran embedsidecar init")
	}
	return n, err
}

// tellUnknown tells a person which keys are none of a pipeline's.
func (e *environment) tellUnknown(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, keys []string) error {
	unknown, err := report.UnknownKeys(ctx, pool, p.ID, keys)
	for _, key := range unknown {
		e.say("warning: pipeline %s knows no row with the key %q; keys are written as failed, search and verify print them",
			p.Name, key)
	}
	return err
}
