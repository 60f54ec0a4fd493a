package main

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// namesDatabase reports whether the user said which database to use, here or in the variables that every client of
// Postgres reads.
func (e *environment) namesDatabase() bool {
	return e.config.Database.URL != "" || slices.ContainsFunc(e.environ, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value != "" && slices.Contains([]string{"PGHOST", "PGPORT", "PGDATABASE", "PGSERVICE", "PGUSER"}, name)
	})
}

// connections opens what leads to the database.
func (e *environment) connections() connection.Opener {
	return connection.Opener{Config: e.config, Log: e.log}
}

// embedders finds plugins and models.
func (e *environment) embedders() embedders.Source {
	return embedders.Source{Config: e.config, Find: e.find, Log: e.log, Redact: e.redact.Text}
}

// connect opens a pool for the commands that end by themselves: one try. The caller closes it.
func (e *environment) connect(ctx context.Context) (*pgxpool.Pool, error) {
	return e.connections().Pool(ctx, connection.Few)
}

// aim connects and returns the pipelines that the arguments name, or all. The caller closes the pool.
func (e *environment) aim(ctx context.Context) (pool *pgxpool.Pool, found []pipeline.Pipeline, err error) {
	if pool, err = e.connect(ctx); err != nil {
		return nil, nil, err
	}
	if found, err = lookup.Named(ctx, pool, e.args); err != nil {
		pool.Close()
	}
	return pool, found, err
}

// aimRows is aim for a command that also takes one pipeline and keys of its rows.
func (e *environment) aimRows(ctx context.Context) (
	pool *pgxpool.Pool, found []pipeline.Pipeline, keys []string, err error,
) {
	if pool, err = e.connect(ctx); err != nil {
		return nil, nil, nil, err
	}
	if found, keys, err = lookup.NamedRows(ctx, pool, e.args); err != nil {
		pool.Close()
	}
	return pool, found, keys, err
}
