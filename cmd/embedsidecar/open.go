package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
)

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

// actor connects, and acts on the pipelines of the database until done is called.
func (e *environment) actor(ctx context.Context) (a *verbs.Actor, done func(), err error) {
	pool, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return verbs.New(pool, verbs.Person()), pool.Close, nil
}
