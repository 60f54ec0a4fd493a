package app

import (
	"context"
	"log/slog"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup"
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

	// Working is called when the start is complete. It may be nil.
	Working func(ctx context.Context)
	// Setup gets the report of each set-up. It may be nil.
	Setup func(setup.Report)
	// Warn gets warnings about set-ups that differ from the configuration. It may be nil.
	Warn func(what string)
	// Reread reads the configuration again. nil: it does not change.
	Reread func() (*config.Config, error)
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
