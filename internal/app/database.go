package app

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// Database is what a Node has for one database: connections, the sidecar, what is served of it, and indexes that are
// built. Plugins and listeners are the Node's.
type Database struct {
	o        Options // the configuration is that of this database
	open     connection.Opener
	plugins  *embedders.Pool
	observer *observe.Observer
	source   *observe.Source
	backend  *query.Backend
	shared   *services // of embedders; nil: its own
	budget   *worker.Budget
	limit    *limit.Limit
	started  func()         // is called when the set-up is over
	loader   resolve.Loader // of the role that works
	wished   chan struct{}  // there may be wishes for other models
	besides  chan struct{}  // there may be generations beside others

	audit atomic.Pointer[pgxpool.Pool] // where the audit is; nil: not connected
	which atomic.Pointer[string]       // the database; nil: there is none, or it is not known yet
}

func newDatabase(o Options, n *Node, name string, phase observe.Phase) *Database {
	db := &Database{
		o: o, open: connection.Opener{Config: o.Config, Log: o.Log, Thrifty: name != ""}, started: func() {},
		plugins: n.plugins, observer: n.observer, wished: make(chan struct{}, 1), besides: make(chan struct{}, 1),
		source: n.observer.Source(o.Config, name, phase),
		shared: n.shared, budget: n.budget, limit: n.limit,
	}
	db.backend = query.New(query.Options{
		Config: o.Config, Log: o.Log, Plugins: n.plugins, Embedder: n.observer.Embedder, Database: n.database,
		Service: n.shared.service(),
	})
	return db
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
