package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Options are the parts and callbacks of a Node.
type Options struct {
	Config *config.Config
	Find   config.Finder
	Log    *slog.Logger
	Redact func(string) string // removes secrets from a text
	Build  observe.Build
	Host   string          // the machine's name; "": not known
	Trace  *trace.Provider // nil: nothing is traced

	Working func(ctx context.Context)      // is called when the start is complete
	Setup   func(setup.Report)             // gets the report of each set-up
	Warn    func(what string)              // gets warnings about set-ups that differ from the configuration
	Reread  func() (*config.Config, error) // reads the configuration again. nil: it does not change
}

// source returns where plugins and models are found.
func (n *Options) source() embedders.Source {
	return embedders.Source{Config: n.Config, Find: n.Find, Log: n.Log, Redact: n.Redact}
}

// RunOptions say how far a run goes.
type RunOptions struct {
	NoInit bool // set nothing up
	Role   Role // which part of the work this process does

	// Reached makes the run end when everything committed at its start is processed. It gets how far the run came, and
	// returns the error of the run. nil: the run goes on until ctx ends.
	Reached func(ctx context.Context, r Reached) error
}

// Role is the part of the work that a process does: all of it, or one half. Other processes do the other half. Any
// number of each may share a slot; the queue connects them.
type Role string

// The roles.
const (
	All    Role = "all"
	Stream Role = "stream" // reads the slot and fills the queue; needs no plugin and sets up nothing
	Work   Role = "work"   // processes the queue; never reads the slot
)

// Reached is how far a run came that ends by itself.
type Reached struct {
	Pool  *pgxpool.Pool
	LSN   pglogrepl.LSN // what was committed at its start
	State report.CaughtUp
	Err   error // why it stopped early
}

// equipment is the connections and embedders of a one-off command.
type equipment struct {
	pool    *pgxpool.Pool // of the configured URL
	owner   *pgxpool.Pool // directly to the server, for what a pooler cannot do
	plugins *embedders.Pool
	left    config.Spread // schemas that were left out
}

// equip connects, and finds the schemas of the pipelines. The caller closes the result.
func (n *Options) equip(ctx context.Context) (e equipment, err error) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	if e.pool, err = open.Pool(ctx, connection.Few); err != nil {
		return e, err
	}
	if e.owner, err = open.Server(ctx, e.pool, connection.Few); err != nil {
		e.pool.Close()
		return e, err
	}
	e.plugins = embedders.New(n.source())
	if n.Config, e.left, err = lookup.InSchemas(ctx, e.pool, n.Config); err != nil {
		return e, errors.Join(err, e.close())
	}
	return e, nil
}

// close closes the embedders, then the connections.
func (e *equipment) close() error {
	err := e.plugins.Close()
	e.owner.Close()
	e.pool.Close()
	return err
}
