// Package setup makes what pipelines need and the database lacks. It looks at everything, plans, and only then does
// anything: it never changes a table of the user without saying so, and every change it makes has its undo in the
// report.
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
	full        error // why there is no repl: the server has no free connection for replication
	system      pglogrepl.IdentifySystemResult
	release     func() // lets other inits in; nil: not kept out yet
	report      Report
	known       *catalog.Known // tables of the specs
	server      serverFacts
	found       []*resolve.Findings // by spec
	stored      []*resolve.Stored   // by spec; nil: new
	others      []resolve.Stored    // of the slot, without a spec
	unpublished []publish.Wanted    // their tables, when the publication is not there or new to them
	pub         *publish.Publication
	slot        slot.State
	moved       []string // slots of another database that this one, a copy of it, gives up
	promised    string   // of a dry run: the schema in which the extension vector would be by now
}

// serverFacts is what the server says of itself and of the role, and what there is of ours.
type serverFacts struct {
	catalog.Server

	Schema    int  // version of our schema; 0: none
	Installed bool // the installation's row is there
}

// Options says what Init shall make.
type Options struct {
	Pool           *pgxpool.Pool // as a role that owns the source tables; straight to the server
	ReplicationDSN string        // as a role that may replicate; the same server and database
	Slot           string
	Publication    string
	Specs          []pipeline.Spec
	Descriptions   map[string]embed.Description // of each pipeline's embedder, by the pipeline's name
	Adopt          bool                         // the database is a copy of another that shall live on its own
	// a sidecar starts: nobody asks for a change, and an older definition is no reason for one while Held
	Starting bool
	// reports whether another sidecar is configured with the definition that a pipeline has, by its digest; nil: it is
	Held func(pipeline, digest string) bool
	// a slot of ours that has a gap is not recreated: that takes a word
	StopOnLost bool
	Loader     *resolve.Loader // of the role of Pool, whatever it has looked at; nil: nothing
	Failover   bool            // standbys keep a copy of the slot; from PostgreSQL 17 on
	DryRun     bool            // say what would be done
	// of a dry run: plan for a server that is not ready, and for a model that was not asked, too; what the server lacks is
	// told by who asks
	Sketch bool
	// the one spec is the next generation of this pipeline; nil: it is a pipeline of its own
	Beside *resolve.Stored
	// returns why a pipeline may not take over this table, which is new, or another than it is set up with; nil: any may
	Judge func(ctx context.Context, tx pgx.Tx, spec *pipeline.Spec, table uint32) error
	// reports whether a pipeline is that of one of several schemas, and so has its name from the schema
	InSchema func(pipeline string) bool
	Chunked  bool // and the embedding table of that one has columns of chunks, which its views may show
	// how long to wait for running transactions; 0: 60 s, and as long as it takes when a sidecar starts: it says for whom
	// it waits, and anyone who starts it again would only wait again
	SlotTimeout time.Duration
	LockTimeout time.Duration // how long a user's statement may have to wait behind ours; 0: 2 s
	Log         *slog.Logger
}

// withDefaults fills in what is not said.
func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.SlotTimeout == 0 && !o.Starting {
		o.SlotTimeout = time.Minute
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, step.Timeout)
	return o
}

// Report says what Init did, or would do.
type Report struct {
	Steps     []step.Step           // in this order; none when everything was there
	Warnings  []string              // what works but may surprise
	Others    []string              // pipelines of the slot that are set up and not configured: they are left as they are
	Kept      map[string]string     // why pipelines that are configured otherwise than they are set up are left so
	Changes   []resolve.ModelChange // of models, which are configured and for ChangeModel to begin
	Pipelines []pipeline.Pipeline   // as configured and confirmed; empty after a dry run
	// of a dry run: what the role may not make, as *refusal.PermissionError; it is a warning, too
	Refused *refusal.PermissionError
}

// runner runs statements as the role that sets up.
func (in *initializer) runner() *step.Runner {
	return &step.Runner{Pool: in.o.Pool, LockTimeout: in.o.LockTimeout, Log: in.log}
}

// foreignPublication returns *ConfigError when the publication belongs to somebody who is not trusted and owns none of
// its tables: he could take changes out of it.
func (in *initializer) foreignPublication(tx pgx.Tx) error {
	if in.pub == nil || in.pub.Trusted ||
		slices.ContainsFunc(in.found, func(f *resolve.Findings) bool { return f.Table.Owner == in.pub.Owner }) {
		return nil
	}
	return &refusal.ConfigError{
		Code: code.Untrusted,
		Problem: fmt.Sprintf("the publication %q belongs to %q, who owns none of its tables and could take changes out of it",
			in.o.Publication, in.pub.Owner),
		Hint: append([]string{"name another publication: a missing one is created"},
			catalog.TrustHint(tx.Conn().Config().User, in.pub.Owner)...),
		Trust: []string{in.pub.Owner},
	}
}
