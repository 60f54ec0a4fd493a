// Package setup makes what pipelines need and the database lacks. It first inspects everything, then plans, and only
// then changes anything. It never changes a user's table without reporting it, and the report has the undo of every
// change.
package setup

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/publish"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// initializer is one run of Init.
type initializer struct {
	o           Options
	log         *slog.Logger
	repl        *pgconn.PgConn
	full        error // why there is no repl: the server has no free replication connection
	system      pglogrepl.IdentifySystemResult
	release     func() // releases the lock against other inits; nil: not held yet
	report      Report
	known       *catalog.Known // tables of the specs
	server      serverFacts
	found       []*resolve.Findings // one per spec
	stored      []*resolve.Stored   // one per spec; nil: new
	others      []resolve.Stored    // pipelines of the slot without a spec
	unpublished []publish.Wanted    // their tables that the publication lacks
	pub         *publish.Publication
	slot        slot.State
	moved       []string // slots of the original that this database, a copy of it, gives up
	promised    string   // in a dry run: the schema in which the extension vector would be
}

// serverFacts is what the server reports about itself, the role, and our objects.
type serverFacts struct {
	catalog.Server

	Schema    int  // version of our schema; 0: none
	Installed bool // the installation's row is there
}

// Options says what Init makes.
type Options struct {
	Pool           *pgxpool.Pool // as a role that owns the source tables; not through a pooler
	ReplicationDSN string        // as a role that may replicate; the same server and database
	Slot           string
	Publication    string
	Specs          []pipeline.Spec
	Descriptions   map[string]embed.Description // of each pipeline's embedder, by the pipeline's name
	Adopt          bool                         // the database is a copy of another, and becomes independent of it
	Adopting       bool                         // vectors of the pipelines are about to be adopted: they stay paused
	Since          string                       // then: the snapshot at the begin of the adoption, as text
	// set when a sidecar starts: no user asks for a change, and an older definition is not applied while Held
	Starting bool
	// reports whether another sidecar is configured with the definition that a pipeline has, by its digest; nil: always
	Held func(pipeline, digest string) bool
	// do not recreate a slot of ours that has a gap: a user must ask for that
	StopOnLost bool
	Loader     *resolve.Loader // caches inspected pipelines for the role of Pool; nil: none
	Failover   bool            // standbys keep a copy of the slot; from PostgreSQL 17 on
	DryRun     bool            // only report what would be done
	// in a dry run: plan also for a server that is not ready and for a model that was not queried; the caller reports
	// what the server lacks
	Sketch bool
	// the one spec is the next generation of this pipeline; nil: it is an independent pipeline
	Beside *resolve.Stored
	// returns why a pipeline may not use this table, which is new or differs from the one it is set up with; nil: any
	// may
	Judge func(ctx context.Context, tx pgx.Tx, spec *pipeline.Spec, table uint32) error
	// reports whether a pipeline belongs to a pattern of schemas, and so gets its name from the schema
	InSchema func(pipeline string) bool
	Chunked  bool // the embedding table of Beside has columns of chunks, which its views may show
	// how long to wait for running transactions; 0: 60 s, but without limit when a sidecar starts: it logs what it
	// waits for, and a restarted one would only wait again
	SlotTimeout time.Duration
	LockTimeout time.Duration // how long a user's statement may have to wait behind ours; 0: 2 s
	StepTimeout time.Duration // of a step, and of inspecting a pipeline, as users' code may not end; 0: 2 min
	Log         *slog.Logger
}

// withDefaults sets the defaults.
func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.SlotTimeout == 0 && !o.Starting {
		o.SlotTimeout = time.Minute
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, step.Timeout)
	o.StepTimeout = cmp.Or(o.StepTimeout, 2*time.Minute)
	o.Loader = cmp.Or(o.Loader, &resolve.Loader{Once: true})
	return o
}

// Report says what Init did, or would do.
type Report struct {
	Steps     []step.Step // in this order; empty if nothing was missing
	Warnings  []string
	Others    []string              // pipelines of the slot that are set up but not configured: they are left unchanged
	Kept      map[string]string     // why pipelines that differ from their configuration are left unchanged
	Changes   []resolve.ModelChange // configured changes of models, which ChangeModel must start
	Pipelines []pipeline.Pipeline   // as configured and confirmed; empty after a dry run
	// in a dry run: what the role may not make; it is also a warning
	Refused *refusal.PermissionError
}

func (in *initializer) runner() *step.Runner {
	return &step.Runner{Pool: in.o.Pool, LockTimeout: in.o.LockTimeout, Limit: in.o.StepTimeout, Log: in.log}
}

// foreignPublication returns *ConfigError when the publication's owner is not trusted and owns none of its tables: the
// owner could remove changes from it.
func (in *initializer) foreignPublication(tx pgx.Tx) error {
	if in.pub == nil || in.pub.Trusted ||
		slices.ContainsFunc(in.found, func(f *resolve.Findings) bool { return f.Table.Owner == in.pub.Owner }) {
		return nil
	}
	return &refusal.ConfigError{
		Code: code.Untrusted,
		Problem: fmt.Sprintf("the publication %q belongs to %q, who owns none of its tables and could take changes out of it",
			in.o.Publication, in.pub.Owner),
		Hint: []string{
			"name another publication: a missing one is created", catalog.RunAs(in.pub.Owner),
			database.TrustOwners(tx.Conn().Config().User, in.pub.Owner),
		},
		Trust: []string{in.pub.Owner},
	}
}
