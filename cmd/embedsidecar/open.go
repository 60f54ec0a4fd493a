package main

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/node/actions"
	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
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

// actions connects, and acts on the pipelines of the database until done is called.
func (e *environment) actions(ctx context.Context) (a *actions.Actions, done func(), err error) {
	pool, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return actions.New(pool, person()), pool.Close, nil
}

// person is who sits before this program, as far as the machine knows: user@host.
func person() string {
	name := "?"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
