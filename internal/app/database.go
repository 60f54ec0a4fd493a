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

// common is what the databases of a Node have in common.
type common struct {
	plugins  *embedders.Pool
	observer *observe.Observer
	shared   *services      // of embedders that several databases have; nil: each its own
	budget   *worker.Budget // of texts in memory, of several databases; nil: of each
	inWork   *limit.InWork  // rows
	database bool           // there is one, or will be
}

// resting is a database that no sidecar of this process works because nothing changes there. It is an error, as what
// ends the work.
type resting struct {
	since, until time.Time
	publication  string

	base *int64        // what its server counted when the last session had left; of the one that looks
	left chan struct{} // the last session has left
	wake chan struct{} // something changes, or it is time to look whether it does
}

// Error says since when it rests, and until when.
func (r *resting) Error() string {
	return fmt.Sprintf("nothing changes since %s; looked at again when something does, and at %s at the latest",
		r.since.UTC().Format(time.TimeOnly), r.until.UTC().Format(time.TimeOnly+" MST"))
}

// Database is what a Node has for one database: connections, the sidecar, what is served of it, and indexes that are
// built. Plugins and listeners are the Node's.
type Database struct {
	common

	o       Options // the configuration is that of this database
	open    connection.Opener
	source  *observe.Source
	backend *query.Backend
	started func()         // is called when the set-up is over
	loader  resolve.Loader // of the role that works
	wished  chan struct{}  // there may be wishes for other models
	besides chan struct{}  // there may be indexes to build
	called  chan struct{}  // there may be requests for pipelines
	among   *tenant        // others; nil: it is the only one

	building atomic.Bool   // an index is not built yet, or a next generation not complete
	passing  time.Duration // how long it is worked at least after a rest: longer if it is soon woken again

	cfg      atomic.Pointer[config.Config] // what is in force
	deployed deployed
	changing sync.Mutex          // held while the configuration changes, or what is set up is compared with it
	running  atomic.Pointer[run] // nil: it does not work yet, or not any more

	audit atomic.Pointer[pgxpool.Pool] // where the audit is; nil: not connected
	which atomic.Pointer[string]       // the database; nil: there is none, or it is not known yet
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

// config is the configuration that is in force.
func (n *Database) config() *config.Config { return n.cfg.Load() }

// options are those of the program with the configuration that is in force.
func (n *Database) options() Options {
	o := n.o
	o.Config = n.config()
	return o
}

// embedders is where plugins and models are found.
func (n *Database) embedders() embedders.Source {
	source := n.o.source()
	source.Config = n.config()
	return source
}

// follow asks which database it works for, so that it can be told from sidecars of others.
func (n *Database) follow(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	which, err := database.Which(ctx, pool)
	if err != nil {
		n.o.Log.WarnContext(ctx, "plugins reload that names a database does not reach this sidecar, SIGHUP does", "error", err)
		return
	}
	n.which.Store(&which)
}
