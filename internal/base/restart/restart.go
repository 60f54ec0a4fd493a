// Package restart keeps the loops of a running sidecar going when a bug makes one of them panic: it logs and counts the
// panic, and restarts the loop, which reads its state from the database. A loop that panics repeatedly is given up, so
// that the supervisor restarts the process. Errors that leave the process in an unknown state end it immediately: a
// fatal error of the runtime (concurrent map writes, out of memory), and a panic outside of a Keeper.
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
	Replication  Part = "replication" // reads the slot, stores changes, and checks the catalog
	Pipelines    Part = "pipelines"   // starts and stops workers
	Worker       Part = "worker"
	Direct       Part = "direct" // changes that are processed immediately
	Scan         Part = "scan"
	Sweeps       Part = "sweeps"
	Housekeeping Part = "housekeeping"
	Leftovers    Part = "leftovers"
	Notices      Part = "notices"
	Answers      Part = "answers" // of texts in sessions' questions
	Relay        Part = "relay"   // of work, between processes that stream and those that work
)

// Parts are all parts.
var Parts = []Part{
	Replication, Pipelines, Worker, Direct, Scan, Sweeps, Housekeeping, Leftovers, Notices, Relay, Answers,
}

// Names returns the names of all parts.
func Names() []string {
	return lists.Map(Parts, func(p Part) string { return string(p) })
}

// A loop that panics more than this many times within this time is given up.
const (
	most          = 5
	within        = 10 * time.Minute
	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// Error is a panic. Of the panic value it only holds what cannot be row text.
type Error struct {
	Part  Part
	Value string
}

func (e *Error) Error() string { return fmt.Sprintf("%s panicked: %s", e.Part, e.Value) }

// Keeper restarts the loops of one process. It is safe for concurrent use.
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

// Guard calls do once. It logs and counts a panic, and returns it as *Error.
func (k *Keeper) Guard(ctx context.Context, p Part, do func() error) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		e := &Error{Part: p, Value: shown(v)}
		k.counts[p].Add(1)
		// The stack has positions and addresses, but no values.
		k.log.ErrorContext(ctx, "panic: a bug in embedsidecar", "part", string(p), "value", e.Value,
			"stack", string(debug.Stack()))
		err = e
	}()
	return do()
}

// shown returns the safe part of a panic value: an error of the runtime names indexes and types, but anything else may
// contain row text.
func shown(v any) string {
	if e, ok := v.(interface {
		error
		RuntimeError()
	}); ok {
		return e.Error()
	}
	return fmt.Sprintf("a value of type %T", v)
}

// Keep runs a loop until it returns, and restarts it after a pause when it panics. When it gives up, it returns the
// last panic.
func (k *Keeper) Keep(ctx context.Context, p Part, loop func(ctx context.Context) error) error {
	var panics []time.Time
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		err := k.Guard(ctx, p, func() error { return loop(ctx) })
		//nolint:errorlint // a wrapped one is from an inner loop, whose Guard handled it
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
