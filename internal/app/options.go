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

// Options say what a Node is made of.
type Options struct {
	Config *config.Config
	Find   config.Finder
	Log    *slog.Logger
	Redact func(string) string // takes what is secret out of a text
	Build  observe.Build
	Host   string          // the machine's name; "": not known
	Trace  *trace.Provider // nil: nothing is traced

	// Working is called when the start is over. nil: nobody waits for that.
	Working func(ctx context.Context)
	// Setup is told what a set-up made, and what somebody should know of it. nil: nobody is told.
	Setup func(setup.Report)
	// Warn is told what somebody should know of what is set up, and works otherwise than the configuration has it.
	Warn func(what string)
	// Reread reads the configuration as it is written down now. nil: it is what it was at the start.
	Reread func() (*config.Config, error)
}

// source is where plugins and models are found.
func (n *Options) source() embedders.Source {
	return embedders.Source{Config: n.Config, Find: n.Find, Log: n.Log, Redact: n.Redact}
}

// RunOptions say how far a run goes.
type RunOptions struct {
	NoInit bool // set nothing up
	Role   Role // what of the work is this process's

	// Reached makes the run end when everything that is committed at its start is worked. It is told how far the run
	// came, and its error is that of the run. nil: the run goes on until it is told to stop.
	Reached func(ctx context.Context, r Reached) error
}

// Role is what of the work a process does: all of it, or one half beside processes that do the other. Any number of
// each may share a slot; the queue is between them.
type Role string

// The roles.
const (
	All    Role = "all"
	Stream Role = "stream" // reads the slot and fills the queue; it sets nothing up and needs no plugin
	Work   Role = "work"   // works the queue, and never reads the slot
)

// Reached is how far a run has come that ends by itself.
type Reached struct {
	Pool  *pgxpool.Pool
	LSN   pglogrepl.LSN // what was committed at its start
	State report.CaughtUp
	Err   error // why it did not come further
}
