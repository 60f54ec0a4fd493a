package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
)

// fewConns is enough for a command that asks one thing after the other.
const fewConns = 4

// options says how this program connects.
func (e *environment) options(conns int32) database.Options {
	return database.Options{
		ApplicationName: e.config.ApplicationName(), MaxConns: conns,
		TrustedOwners: e.config.Database.TrustedOwners(), Log: e.log,
	}
}

// namesDatabase reports whether the user said which database to use, here or in the variables that every client of
// Postgres reads.
func (e *environment) namesDatabase() bool {
	return e.config.Database.URL != "" || slices.ContainsFunc(e.environ, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value != "" && slices.Contains([]string{"PGHOST", "PGPORT", "PGDATABASE", "PGSERVICE", "PGUSER"}, name)
	})
}

// connect opens a pool for the commands that end by themselves: one try. The caller closes it.
func (e *environment) connect(ctx context.Context) (*pgxpool.Pool, error) {
	return e.pool(ctx, fewConns)
}

// pool opens a pool on the database that the user named.
func (e *environment) pool(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	pool, err := database.Connect(ctx, e.config.Database.URL, e.options(conns))
	if failed, ok := errors.AsType[*database.Error](err); ok {
		if e.config.Database.URL == "" {
			failed.Hint = append([]string{"no database was named: --database-url postgres://user@host/database, or EMBEDSIDECAR_DATABASE_URL, or the PG* variables"}, failed.Hint...)
		} else {
			failed.Hint = append(slices.Clone(failed.Hint), "the connection string comes from "+e.config.Origin("database.url"))
		}
	}
	return pool, err
}

// server opens a pool that leads straight to the server, for what a pooler cannot do. Whoever gives --stream-url
// another role than --database-url wants that role for the stream only: then its address is taken and nothing else.
func (e *environment) server(ctx context.Context, pool *pgxpool.Pool, conns int32) (*pgxpool.Pool, error) {
	dsn, o := e.config.Database.URL, e.options(conns)
	switch {
	case sameRole(dsn, e.config.Database.Stream()):
		dsn = e.config.Database.Stream()
	case database.Pooled(pool):
		o.Via = e.config.Database.Stream()
	}
	return database.Connect(ctx, dsn, o)
}

func sameRole(a, b string) bool {
	x, err := config.ParseDSN(a)
	if err != nil {
		return false
	}
	y, err := config.ParseDSN(b)
	return err == nil && x.User == y.User
}

// dial opens a connection for replication.
func (e *environment) dial(ctx context.Context) (*pgconn.PgConn, error) {
	return database.ConnectReplication(ctx, e.config.Database.Stream(), e.options(0))
}

// patient does something that needs the server, and tries again for as long as --connect-timeout says while nobody
// answers or the server is starting. What a person must mend ends it at once.
func patient[T any](ctx context.Context, e *environment, open func(ctx context.Context) (T, error)) (T, error) {
	const first, longest = 250 * time.Millisecond, 5 * time.Second
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	try := func() (T, error) {
		opened, err := open(ctx)
		failed, known := errors.AsType[*database.Error](database.Wrap(err))
		switch {
		case known && slices.Contains([]database.Kind{database.Unreachable, database.Starting, database.Full}, failed.Kind):
		case !known && database.Passing(err): // a connection that was open already
		case err != nil:
			err = backoff.Permanent(err)
		}
		return opened, err
	}
	limit := e.config.Database.ConnectTimeout
	if limit <= 0 {
		return open(ctx)
	}
	return backoff.Retry(ctx, try, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(limit),
		backoff.WithNotify(func(err error, next time.Duration) {
			e.log.WarnContext(ctx, "no connection to the database yet", "error", err, "ways_out", problem.Hints(err), "next_try_in",
				next.Round(time.Millisecond))
		}))
}

// poolSize is how many connections a running sidecar may need: one for each batch in work and each scan, and a few
// for what goes on beside. What the connection string says wins.
func (e *environment) poolSize(pipelines int) int32 {
	const beside, most = 4, 40
	if strings.Contains(e.config.Database.URL, "pool_max_conns") {
		return 0
	}
	return int32(min(beside+max(pipelines, 2)*(e.loops()+1), most)) //nolint:gosec // at most 40
}

// loops is how many batches each pipeline works on at a time.
func (e *environment) loops() int {
	if e.config.Workers.Count > 0 {
		return e.config.Workers.Count
	}
	return pipeline.DefaultLoops
}
