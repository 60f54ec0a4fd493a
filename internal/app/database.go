package app

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// common is what the databases of a Node share.
type common struct {
	plugins  *embedders.Pool
	observer *observe.Observer
	shared   *services      // embedder services of several databases; nil: each has its own
	budget   *worker.Budget // for texts in memory, of several databases; nil: each has its own
	inWork   *limit.InWork  // rows
	database bool           // the program has a database
}

// resting is the state of a database without changes, for which no sidecar of this process runs. It is an error, so
// that it can end the run.
type resting struct {
	since, until time.Time
	publication  string

	base *int64        // the server's change counter when the last session had left; only several.look uses it
	left chan struct{} // the last session has left
	wake chan struct{} // something changes, or a check is due
}

// Error says since when and until when the database rests.
func (r *resting) Error() string {
	return fmt.Sprintf("no changes since %s; the next check is after a change, or at %s",
		r.since.UTC().Format(time.TimeOnly), r.until.UTC().Format(time.TimeOnly+" MST"))
}

// Database is what a Node has for one database: connections, the sidecar, query services and index builds. Plugins and
// listeners belong to the Node.
type Database struct {
	common

	o       Options // with the configuration of this database
	open    connection.Opener
	source  *observe.Source
	backend *query.Backend
	started func()         // called when the set-up is done
	loader  resolve.Loader // of the role of pools.work
	wished  chan struct{}  // there may be requests for other models
	besides chan struct{}  // there may be indexes to build, or a generation to switch to
	called  chan struct{}  // there may be requests for pipelines
	among   *tenant        // its place among several databases; nil: it is the only one

	building atomic.Bool   // an index or a next generation is not complete
	passing  time.Duration // minimum run time after a rest; it grows if the database is woken again soon

	cfg      atomic.Pointer[config.Config] // in force
	deployed deployed
	changing sync.Mutex          // held while the configuration changes or is compared with what is set up
	running  atomic.Pointer[run] // nil: not running

	audit atomic.Pointer[pgxpool.Pool] // for audit entries; nil: not connected
	which atomic.Pointer[string]       // identity of the database; nil: none, or not known yet

	active atomic.Pointer[string] // the pipelines that could work when they were last loaded
}

func newDatabase(o Options, c common, name string, phase observe.Phase) *Database {
	db := &Database{
		common: c, o: o, open: connection.Opener{Config: o.Config, Log: o.Log, Thrifty: name != ""}, started: func() {},
		deployed: deployed{
			digests: map[string]string{}, seen: map[held]time.Time{}, pairs: map[tablePair]bool{},
			leaving: map[string]time.Time{},
		},
		wished: make(chan struct{}, 1), besides: make(chan struct{}, 1), called: make(chan struct{}, 1),
		source: c.observer.Source(o.Config, name, phase),
	}
	db.cfg.Store(o.Config)
	db.backend = query.New(query.Options{
		Config: o.Config, Plugins: c.plugins, Embedder: c.observer.Embedder, Database: c.database,
		Service: c.shared.service(),
	})
	return db
}

// config returns the configuration in force.
func (n *Database) config() *config.Config { return n.cfg.Load() }

// options returns the program's options with the configuration in force.
func (n *Database) options() Options {
	o := n.o
	o.Config = n.config()
	return o
}

// follow stores the identity of the database, so that plugins reload can choose the sidecars of one database.
func (n *Database) follow(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	which, err := database.Which(ctx, pool)
	if err != nil {
		n.o.Log.WarnContext(ctx, "could not identify the database: plugins reload --database-url does not reach this sidecar; use SIGHUP", "error", err)
		return
	}
	n.which.Store(&which)
}
