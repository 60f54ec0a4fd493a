// Package connection opens connections to the configured database, for work and for the stream, with retries for
// programs that may start before their server.
package connection

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// The number of connections of pools that are not for work.
const (
	Few     = 4 // for callers that send one query at a time
	Stream  = 3 // one each for the streamer, the heartbeat and init
	Queries = 8 // concurrent searches
)

// Opener opens connections.
type Opener struct {
	Config *config.Config
	Log    *slog.Logger
	// Thrifty closes idle connections soon, because there are many databases.
	Thrifty bool
	// CatalogOnly skips the trust check, for reads outside a schema embedsidecar that is not trusted.
	CatalogOnly bool
}

func (o Opener) options(conns int32) database.Options {
	return database.Options{
		Thrifty: o.Thrifty, ApplicationName: o.Config.ApplicationName(), MaxConns: conns,
		TrustedOwners: o.Config.Database.TrustedOwners(), CatalogOnly: o.CatalogOnly, Log: o.Log,
		Renew: o.Config.Database.Renew,
	}
}

// Pool opens a pool for the configured database.
func (o Opener) Pool(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	pool, err := database.Connect(ctx, o.Config.Database.URL, o.options(conns))
	if failed, ok := errors.AsType[*database.Error](err); ok {
		if o.Config.Database.URL == "" {
			failed.Hint = append([]string{"no database was named: --database-url postgres://user@host/database, or EMBEDSIDECAR_DATABASE_URL, or the PG* variables"}, failed.Hint...)
		} else {
			failed.Hint = append(slices.Clone(failed.Hint), "the connection string comes from "+o.Config.Origin("database.url"))
		}
	}
	return pool, err
}

// Server opens a pool that bypasses a pooler, for what a pooler cannot do. If --stream-url has another role than
// --database-url, that role is for the stream only: Server uses the address of the stream with the role of the
// database.
func (o Opener) Server(ctx context.Context, pool *pgxpool.Pool, conns int32) (*pgxpool.Pool, error) {
	dsn, options := o.Config.Database.URL, o.options(conns)
	switch {
	case sameRole(dsn, o.Config.Database.Stream()):
		dsn = o.Config.Database.Stream()
	case database.Pooled(pool):
		options.Via = o.Config.Database.Stream()
	}
	return database.Connect(ctx, dsn, options)
}

func sameRole(a, b string) bool {
	x, err := config.ParseDSN(a)
	if err != nil {
		return false
	}
	y, err := config.ParseDSN(b)
	return err == nil && x.User == y.User
}

// Dial opens a connection for replication.
func (o Opener) Dial(ctx context.Context) (*pgconn.PgConn, error) {
	return database.ConnectReplication(ctx, o.Config.Database.Stream(), o.options(0))
}

// Retry calls open. While the server does not answer or is starting, it retries for database.connect_timeout. Errors
// that a user must fix end it immediately.
func Retry[T any](ctx context.Context, o Opener, open func(ctx context.Context) (T, error)) (T, error) {
	const first, longest = 250 * time.Millisecond, 5 * time.Second
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	try := func() (T, error) {
		opened, err := open(ctx)
		failed, known := errors.AsType[*database.Error](database.Wrap(err))
		switch {
		case known && slices.Contains([]database.Kind{database.Unreachable, database.Starting, database.Full}, failed.Kind):
		case !known && database.IsTransient(err): // an open connection broke
		case err != nil:
			err = backoff.Permanent(err)
		}
		return opened, err
	}
	limit := o.Config.Database.ConnectTimeout
	if limit <= 0 {
		return open(ctx)
	}
	return backoff.Retry(ctx, try, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(limit),
		backoff.WithNotify(func(err error, next time.Duration) {
			o.Log.WarnContext(ctx, "no connection to the database yet", "error", err, "hints", problem.Hints(err),
				"next_try_in",
				next.Round(time.Millisecond))
		}))
}

// WorkConns is how many connections a running sidecar may need: one for each concurrent batch and scan, and a few
// others. The connection string takes precedence (0).
func (o Opener) WorkConns(pipelines int) int32 {
	const beside, most = 4, 40
	if strings.Contains(o.Config.Database.URL, "pool_max_conns") {
		return 0
	}
	return int32(min(beside+max(pipelines, 2)*(Loops(o.Config)+1), most)) //nolint:gosec // at most 40
}

// Loops is how many batches each pipeline processes concurrently.
func Loops(c *config.Config) int {
	if c.Workers.Count > 0 {
		return c.Workers.Count
	}
	return pipeline.DefaultLoops
}
