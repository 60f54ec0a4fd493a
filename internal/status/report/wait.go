package report

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// CaughtUp is how far a slot's pipelines have processed the changes before an LSN.
type CaughtUp struct {
	Decoded bool  `json:"decoded"` // all changes are queued or done
	Open    int64 `json:"open"`    // unfinished tasks for them
	Scans   int64 `json:"scans"`   // pipelines with an unfinished scan
	// pipelines whose table was altered and not yet checked; counted if nothing else is left
	Altered int64 `json:"altered"`
	Failed  int64 `json:"failed"` // dead letters: not waited for
	// cancelled rows: not waited for
	Cancelled int64 `json:"cancelled"`
	// rows that were postponed to a later time: not waited for until then
	PutOff  int64    `json:"put_off"`
	Resting []string `json:"resting"` // pipelines that cannot or should not work now: not waited for
	// Unrouted are pipelines whose current version the streamer has not loaded yet: it may miss their changes, and a
	// scan will find these.
	Unrouted []string `json:"unrouted"`
}

// Yes reports whether nothing is left to wait for.
func (c CaughtUp) Yes() bool {
	return c.Decoded && c.Open == 0 && c.Scans == 0 && c.Altered == 0 && len(c.Unrouted) == 0
}

// streamersTurn reports whether the streamer must act next.
func (c CaughtUp) streamersTurn() bool { return !c.Decoded || c.Altered > 0 || len(c.Unrouted) > 0 }

// ErrNoSlot means that the slot has no checkpoint in this database.
var ErrNoSlot = errors.New("no such slot has an LSN checkpoint in this database: run `embedsidecar init` first")

// ErrNoPipeline means that the slot has no pipeline here, or not yet: a setup in progress creates its checkpoint first.
var ErrNoPipeline = errors.New("no pipeline of this slot is set up in this database: run `embedsidecar init` first")

// At reads the state once. The catalog shows changes to tables that are not in the WAL (ALTER TYPE ... USING, an
// attached partition). The streamer stores what it has seen of these together with its request for a scan, so the
// catalog is read before the scans.
func At(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return at(ctx, server{db: db}, slot, lsn)
}

// progress is the part of a database that a wait queries.
type progress interface {
	// caughtUp returns how far a slot's pipelines are, and whether it has any; pgx.ErrNoRows: no checkpoint.
	caughtUp(ctx context.Context, slot string, lsn pglogrepl.LSN) (c CaughtUp, pipelines bool, err error)
	// altered counts the pipelines whose catalog entries differ from what the streamer has seen.
	altered(ctx context.Context, slot string) (n int64, err error)
	// ask makes the streamer persist its position as soon as it reaches an LSN; nil: the current one.
	ask(ctx context.Context, lsn *string) (at pglogrepl.LSN, err error)
}

// at reads the queue, then the catalog if nothing is left, and then the queue again.
func at(ctx context.Context, db progress, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	queue := func() (CaughtUp, error) {
		c, pipelines, err := db.caughtUp(ctx, slot, lsn)
		return c, refused(slot, pipelines, err)
	}
	c, err := queue()
	if err != nil || !c.Yes() {
		return c, err
	}
	altered, err := db.altered(ctx, slot)
	if err != nil {
		return c, err
	}
	c, err = queue()
	c.Altered = altered
	return c, err
}

// differs reports whether the catalog entries of a pipeline differ from what the streamer has seen.
func differs(fields []pgconn.FieldDescription, values [][]byte) bool {
	value := func(name string) []byte {
		return values[slices.IndexFunc(fields, func(f pgconn.FieldDescription) bool { return f.Name == name })]
	}
	return !bytes.Equal(value("known"), value("current")) // jsonb: equal content has equal bytes
}

// refused returns the error for a slot whose state could not be read (err), or which has no pipelines.
func refused(slot string, pipelines bool, err error) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNoSlot
	case err != nil:
		return fmt.Errorf("ask how far slot %q is: %w", slot, err)
	case !pipelines:
		return ErrNoPipeline
	}
	return nil
}

// Now returns an LSN above everything committed before this call. It makes the streamer persist its position as soon as
// it gets there; an idle streamer would otherwise skip that write.
func Now(ctx context.Context, db database.DB) (pglogrepl.LSN, error) {
	return server{db: db}.ask(ctx, nil)
}

// Wait waits until a slot's pipelines have caught up with an LSN. If ctx ends first, it returns the current state and
// the error of ctx.
func Wait(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return waitFor(ctx, server{db: db}, slot, lsn)
}

// Moment is how long a single check waits for the streamer to report its position. An idle streamer reports it only on
// request.
const Moment = 500 * time.Millisecond

// Look returns how far a slot's pipelines are with an LSN. It waits at most a Moment for the streamer, and for no row.
func Look(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return look(ctx, func() (CaughtUp, error) { return At(ctx, db, slot, lsn) }, hurry(ctx, server{db: db}, lsn))
}

func look(ctx context.Context, at func() (CaughtUp, error), hurry func() error) (CaughtUp, error) {
	moment, end := context.WithTimeout(ctx, Moment)
	defer end()
	var failed error
	c, err := wait(moment, func() (c CaughtUp, err error) {
		c, err = at()
		if failed = err; c.Decoded {
			end()
		}
		return c, err
	}, hurry)
	if moment.Err() != nil { // the moment ended, not the wait
		err = cmp.Or(ctx.Err(), failed)
	}
	return c, err
}

func waitFor(ctx context.Context, db progress, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return wait(ctx, func() (CaughtUp, error) { return at(ctx, db, slot, lsn) }, hurry(ctx, db, lsn))
}

// hurry returns a function that makes the streamer persist its position as soon as it reaches an LSN.
func hurry(ctx context.Context, db progress, lsn pglogrepl.LSN) func() error {
	wanted := lsn.String()
	return func() error {
		_, err := db.ask(ctx, &wanted)
		return err
	}
}

// wait reads the state until nothing is left.
func wait(ctx context.Context, at func() (CaughtUp, error), hurry func() error) (c CaughtUp, err error) {
	err = poll(ctx, func() (ends, streamersTurn bool, err error) {
		c, err = at()
		return c.Yes(), c.streamersTurn(), err
	}, hurry)
	return c, err
}

// poll calls look until it ends, and hurries the streamer when it must act next.
func poll(ctx context.Context, look func() (ends, streamersTurn bool, err error), hurry func() error) error {
	const (
		shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
		first, again      = 100 * time.Millisecond, time.Second // an earlier request is usually answered by then
	)
	next := time.Now().Add(first)
	for pause := shortest; ; pause = min(2*pause, longest) {
		began := time.Now()
		ends, turn, err := look()
		if err != nil && ctx.Err() == nil || err == nil && ends {
			return err
		}
		// Without this, the streamer acts at its next heartbeat, and stores an idle position only after ten minutes.
		// The request is repeated, because a streamer that has just started did not get it.
		if now := time.Now(); now.After(next) && turn {
			next = now.Add(again)
			if err := hurry(); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if !sleep.For(ctx, max(pause, 2*time.Since(began))) { // counting a million tasks is expensive
			return context.Cause(ctx)
		}
	}
}

// Left is what a pipeline still has to process of the changes before an LSN.
type Left struct {
	Pipeline  string
	Decoded   bool // all changes are queued or done
	Rows      int64
	Running   int64 // being processed now
	Failed    int64 // dead letters: not waited for
	Cancelled int64 // cancelled rows: not waited for
	PutOff    int64 // postponed rows: not waited for until they are due
	Scanning  bool  // a scan is in progress
	Resting   string
	Sidecar   bool // a sidecar runs
}

// Drained reports whether nothing is left to embed.
func (l *Left) Drained() bool { return l.Decoded && l.Rows == 0 && !l.Scanning }

// Stands reports whether waiting does not help: all changes are read, the pipeline does not work, and no row is being
// processed.
func (l *Left) Stands() bool { return l.Decoded && l.Resting != "" && l.Running == 0 }

// Drain waits until nothing committed before the call is left of pipelines, or until waiting no longer helps. If ctx
// ends first, it returns their state, sorted by name, and the error of ctx. It calls tell with each state it reads.
func Drain(ctx context.Context, db database.DB, ids []int32, tell func([]Left)) (list []Left, err error) {
	lsn, err := Now(ctx, db)
	if err != nil {
		return nil, err
	}
	left := func() ([]Left, error) {
		return collect(ctx, db, "ask what is left", pgx.RowToStructByPos[Left], "drain_state",
			pgx.StrictNamedArgs{"pipeline_ids": ids, "lsn": lsn.String()})
	}
	return drain(ctx, left, hurry(ctx, server{db: db}, lsn), tell)
}

// drain reads the state until nothing is left or waiting no longer helps.
func drain(ctx context.Context, at func() ([]Left, error), hurry func() error, tell func([]Left)) (list []Left,
	err error,
) {
	err = poll(ctx, func() (ends, streamersTurn bool, err error) {
		now, err := at()
		if err != nil {
			return false, false, err
		}
		list, ends = now, true
		tell(list)
		for i := range list {
			ends = ends && (list[i].Drained() || list[i].Stands())
			streamersTurn = streamersTurn || !list[i].Decoded
		}
		return ends, streamersTurn, nil
	}, hurry)
	return list, err
}
