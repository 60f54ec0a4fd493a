// Package connection opens connections to the database that the configuration names: for work, for the stream, and
// again and again where a program may start before its server.
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

// How many connections a pool has, where it is not for work.
const (
	Few     = 4 // enough for a caller who asks one thing after the other
	Stream  = 3 // the streamer's own, the heartbeat's look, and one for init
	Queries = 8 // how many searches may run at a time
)

// Opener opens connections.
type Opener struct {
	Config *config.Config
	Log    *slog.Logger
	// Thrifty has connections closed soon that are idle: there are many databases.
	Thrifty bool
	// CatalogOnly opens pools for what is read beside a schema embedsidecar that is not safe to use.
	CatalogOnly bool
}

// options says how this program connects.
func (o Opener) options(conns int32) database.Options {
	return database.Options{
		Thrifty: o.Thrifty, ApplicationName: o.Config.ApplicationName(), MaxConns: conns,
		TrustedOwners: o.Config.Database.TrustedOwners(), CatalogOnly: o.CatalogOnly, Log: o.Log,
	}
}

// Pool opens a pool on the database that the user named.
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

// Server opens a pool that leads straight to the server, for what a pooler cannot do. Anyone who gives --stream-url
// another role than --database-url wants that role for the stream only: then its address is taken and nothing else.
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

// Retry does something that needs the server, and tries again for as long as database.connect_timeout says while nobody
// answers or the server is starting. What a person must mend ends it at once.
func Retry[T any](ctx context.Context, o Opener, open func(ctx context.Context) (T, error)) (T, error) {
	const first, longest = 250 * time.Millisecond, 5 * time.Second
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	try := func() (T, error) {
		opened, err := open(ctx)
		failed, known := errors.AsType[*database.Error](database.Wrap(err))
		switch {
		case known && slices.Contains([]database.Kind{database.Unreachable, database.Starting, database.Full}, failed.Kind):
		case !known && database.IsTransient(err): // a connection that was open already
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

// WorkConns is how many connections a running sidecar may need: one for each batch in work and each scan, and a few
// for what goes on beside. What the connection string says wins.
func (o Opener) WorkConns(pipelines int) int32 {
	const beside, most = 4, 40
	if strings.Contains(o.Config.Database.URL, "pool_max_conns") {
		return 0
	}
	return int32(min(beside+max(pipelines, 2)*(Loops(o.Config)+1), most)) //nolint:gosec // at most 40
}

// Loops is how many batches each pipeline works on at a time.
func Loops(c *config.Config) int {
	if c.Workers.Count > 0 {
		return c.Workers.Count
	}
	return pipeline.DefaultLoops
}
