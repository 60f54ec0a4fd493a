// Package restart keeps the loops of a running sidecar going when a mistake of ours makes one of them panic: the panic
// is logged and counted, and the loop begins again from what the database says. What panics again and again is given
// up, so that anyone who supervises the process restarts it. It does not hide what leaves the process in an unknown
// state: a fatal error of the runtime (maps written by two, no memory) and a panic in anything that is not under a
// Keeper end it at once.
package restart

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
)

// Part is a kind of loop.
type Part string

// The parts.
const (
	Replication  Part = "replication" // what reads the slot, stores, and looks at the catalogue
	Pipelines    Part = "pipelines"   // what starts and stops workers
	Worker       Part = "worker"
	Direct       Part = "direct" // changes that are worked at once
	Scan         Part = "scan"
	Sweeps       Part = "sweeps"
	Housekeeping Part = "housekeeping"
	Leftovers    Part = "leftovers"
	Notices      Part = "notices"
	Answers      Part = "answers" // of texts that sessions ask for
	Relay        Part = "relay"   // of work, between processes that stream and that work
)

// Parts are all of them.
var Parts = []Part{
	Replication, Pipelines, Worker, Direct, Scan, Sweeps, Housekeeping, Leftovers, Notices, Relay, Answers,
}

// Names returns their names.
func Names() []string {
	return lists.Map(Parts, func(p Part) string { return string(p) })
}

// A loop that panics more than this many times within so long is given up.
const (
	most          = 5
	within        = 10 * time.Minute
	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// Error is a panic. It holds no more of what was panicked with than is sure to be no text of a row.
type Error struct {
	Part  Part
	Value string
}

func (e *Error) Error() string { return fmt.Sprintf("%s panicked: %s", e.Part, e.Value) }

// Keeper keeps the loops of one process. Safe for concurrent use.
type Keeper struct {
	log    *slog.Logger
	counts map[Part]*atomic.Int64
}

// New returns a Keeper that logs.
func New(log *slog.Logger) *Keeper {
	k := &Keeper{log: log, counts: map[Part]*atomic.Int64{}}
	for _, p := range Parts {
		k.counts[p] = &atomic.Int64{}
	}
	return k
}

// Panics returns how often a part has panicked.
func (k *Keeper) Panics(p Part) int64 { return k.counts[p].Load() }

// Guard does something once. A panic in it is logged, counted and returned as *Error.
func (k *Keeper) Guard(ctx context.Context, p Part, do func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		e := &Error{Part: p, Value: shown(v)}
		k.counts[p].Add(1)
		// The stack has places and addresses, no values.
		k.log.ErrorContext(ctx, "panic: a mistake of embedsidecar's", "part", string(p), "value", e.Value,
			"stack", string(debug.Stack()))
		err = e
	}()
	return do()
}

// shown is what can be said of what was panicked with: an error of the runtime names indexes and types, anything else
// may hold the text of a row.
func shown(v any) string {
	if e, ok := v.(interface {
		error
		RuntimeError()
	}); ok {
		return e.Error()
	}
	return fmt.Sprintf("a value of type %T", v)
}

// Keep runs a loop until it ends by itself, and begins it again after a pause when it panics. The last panic of one
// that is given up is its error.
func (k *Keeper) Keep(ctx context.Context, p Part, loop func(ctx context.Context) error) error {
	var panics []time.Time
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := k.Guard(ctx, p, func() error { return loop(ctx) })
		//nolint:errorlint // one that the loop has wrapped is not this loop's: who guards it has answered it
		e, panicked := err.(*Error)
		if !panicked || ctx.Err() != nil {
			return err
		}
		panics = append(panics, time.Now())
		for time.Since(panics[0]) > within {
			panics = panics[1:]
			pause = shortestPause
		}
		if len(panics) > most {
			return fmt.Errorf("given up after %d panics within %s: %w", len(panics), within, e)
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
	}
}
