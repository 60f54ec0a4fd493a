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

// CaughtUp is how far a slot's pipelines are with everything before an LSN.
type CaughtUp struct {
	Decoded bool  `json:"decoded"` // all of it is in the queue or done
	Open    int64 `json:"open"`    // tasks for it that are not done
	Scans   int64 `json:"scans"`   // pipelines whose scan is not over
	// pipelines whose table was altered and not looked at since; counted when nothing else is left
	Altered int64 `json:"altered"`
	Failed  int64 `json:"failed"` // dead letters for it: not waited for
	// rows that somebody took out of the queue: not waited for
	Cancelled int64 `json:"cancelled"`
	// rows that somebody put off to a later time: not waited for before that
	PutOff  int64    `json:"put_off"`
	Resting []string `json:"resting"` // pipelines that cannot or shall not work now: not waited for
	// Unrouted are pipelines that the streamer does not know yet as they are now: their changes may pass unseen, and a
	// scan will find them.
	Unrouted []string `json:"unrouted"`
}

// Yes reports whether nothing is left to wait for.
func (c CaughtUp) Yes() bool {
	return c.Decoded && c.Open == 0 && c.Scans == 0 && c.Altered == 0 && len(c.Unrouted) == 0
}

// streamersTurn reports whether the streamer must act before anybody else can.
func (c CaughtUp) streamersTurn() bool { return !c.Decoded || c.Altered > 0 || len(c.Unrouted) > 0 }

// ErrNoSlot means that a slot has no checkpoint here.
var ErrNoSlot = errors.New("no such slot has an LSN checkpoint in this database: run `embedsidecar init` first")

// ErrNoPipeline means that a slot has no pipeline here, or not yet: a set-up under way makes its checkpoint first.
var ErrNoPipeline = errors.New("no pipeline of this slot is set up in this database: run `embedsidecar init` first")

// At asks once. What the WAL does not tell of a table (ALTER TYPE ... USING, a partition that is attached) the
// catalogue does, and the streamer stores what it has seen of that together with its request for a scan: so the
// catalogue comes first, and then the scans.
func At(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return at(ctx, server{db}, slot, lsn)
}

// progress is what somebody who waits asks of a database.
type progress interface {
	// caughtUp is how far a slot's pipelines are, and whether it has any; pgx.ErrNoRows: it has no checkpoint.
	caughtUp(ctx context.Context, slot string, lsn pglogrepl.LSN) (c CaughtUp, pipelines bool, err error)
	// altered counts the pipelines of which the catalogue says something else than the streamer has seen.
	altered(ctx context.Context, slot string) (n int64, err error)
	// ask makes the streamer persist its position as soon as it reaches an LSN; nil: that of now.
	ask(ctx context.Context, lsn *string) (at pglogrepl.LSN, err error)
}

func at(ctx context.Context, db progress, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return ordered(
		func() (CaughtUp, error) {
			c, pipelines, err := db.caughtUp(ctx, slot, lsn)
			return c, refused(slot, pipelines, err)
		},
		func() (int64, error) { return db.altered(ctx, slot) },
	)
}

// differs reports whether the catalogue says something else of a pipeline than the streamer has seen.
func differs(fields []pgconn.FieldDescription, values [][]byte) bool {
	value := func(name string) []byte {
		return values[slices.IndexFunc(fields, func(f pgconn.FieldDescription) bool { return f.Name == name })]
	}
	return !bytes.Equal(value("known"), value("current")) // jsonb: equal content has equal bytes
}

// refused is what is told of a slot that could not be asked for, or that has nothing to be caught up with: err is that
// of the question, and pipelines says whether it has any.
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

// ordered asks the queue, then the catalogue if nothing is left, and then the queue again.
func ordered(at func() (CaughtUp, error), altered func() (int64, error)) (CaughtUp, error) {
	c, err := at()
	if err != nil || !c.Yes() {
		return c, err
	}
	n, err := altered()
	if err != nil {
		return c, err
	}
	c, err = at()
	c.Altered = n
	return c, err
}

// Now returns an LSN that everything committed before this call lies below, and makes the streamer persist its
// position as soon as it gets there: an idle one otherwise saves itself the write.
func Now(ctx context.Context, db database.DB) (pglogrepl.LSN, error) { return server{db}.ask(ctx, nil) }

// Wait waits until a slot's pipelines have caught up with an LSN. When ctx ends first it returns how far they are and
// ctx's error.
func Wait(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return waitFor(ctx, server{db}, slot, lsn)
}

// Moment is how long anyone who looks once waits for the streamer to say where it is: while nothing happens it says so
// when it is asked.
const Moment = 500 * time.Millisecond

// Look tells how far a slot's pipelines are with an LSN. It waits for no row, and for the streamer a Moment.
func Look(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return look(ctx, func() (CaughtUp, error) { return At(ctx, db, slot, lsn) }, hurry(ctx, server{db}, lsn))
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
	if moment.Err() != nil { // what ended is the moment
		err = cmp.Or(ctx.Err(), failed)
	}
	return c, err
}

func waitFor(ctx context.Context, db progress, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	return wait(ctx, func() (CaughtUp, error) { return at(ctx, db, slot, lsn) }, hurry(ctx, db, lsn))
}

// hurry has the streamer persist its position as soon as it reaches an LSN.
func hurry(ctx context.Context, db progress, lsn pglogrepl.LSN) func() error {
	wanted := lsn.String()
	return func() error {
		_, err := db.ask(ctx, &wanted)
		return err
	}
}

// wait asks how far it is until nothing is left.
func wait(ctx context.Context, at func() (CaughtUp, error), hurry func() error) (c CaughtUp, err error) {
	err = poll(ctx, func() (ends, streamersTurn bool, err error) {
		c, err = at()
		return c.Yes(), c.streamersTurn(), err
	}, hurry)
	return c, err
}

// poll looks until that ends, and has the streamer hurry where it is its turn.
func poll(ctx context.Context, look func() (ends, streamersTurn bool, err error), hurry func() error) error {
	const (
		shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
		first, again      = 100 * time.Millisecond, time.Second // who has just asked is mostly answered before
	)
	next := time.Now().Add(first)
	for pause := shortest; ; pause = min(2*pause, longest) {
		began := time.Now()
		ends, turn, err := look()
		if err != nil && ctx.Err() == nil || err == nil && ends {
			return err
		}
		// Without it the streamer looks at its next heartbeat, and stores an idle position after ten minutes. One that has
		// just begun has not heard what was asked before.
		if now := time.Now(); now.After(next) && turn {
			next = now.Add(again)
			if err := hurry(); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if !sleep.For(ctx, max(pause, 2*time.Since(began))) { // what waits in a million is dear to count
			return context.Cause(ctx)
		}
	}
}

// Left is how far a pipeline is with everything before an LSN.
type Left struct {
	Pipeline  string
	Decoded   bool // all of it is in the queue or done
	Rows      int64
	Running   int64 // in work at this moment
	Failed    int64 // dead letters: not waited for
	Cancelled int64 // rows that somebody took out of the queue: not waited for
	PutOff    int64 // rows that somebody put off to a later time: not waited for before that
	Scanning  bool  // a scan is not over
	Resting   string
	Sidecar   bool // one runs
}

// Drained reports whether nothing is left to embed.
func (l *Left) Drained() bool { return l.Decoded && l.Rows == 0 && !l.Scanning }

// Stands reports whether nothing becomes less by waiting: all is read, the pipeline rests, and nobody is at work any
// more.
func (l *Left) Stands() bool { return l.Decoded && l.Resting != "" && l.Running == 0 }

// DrainState tells how far pipelines are, by their names.
func DrainState(ctx context.Context, db database.Reader, ids []int32, lsn pglogrepl.LSN) ([]Left, error) {
	return collect(ctx, db, "ask what is left", pgx.RowToStructByPos[Left], "drain_state",
		pgx.StrictNamedArgs{"pipeline_ids": ids, "lsn": lsn.String()})
}

// Drain waits until nothing that was committed before it began is left of pipelines, or until what is left stands
// still. When ctx ends first it returns how far they are and ctx's error. tell is told how far they are each time that
// is asked.
func Drain(ctx context.Context, db database.DB, ids []int32, tell func([]Left)) (list []Left, err error) {
	lsn, err := Now(ctx, db)
	if err != nil {
		return nil, err
	}
	return drain(ctx, func() ([]Left, error) { return DrainState(ctx, db, ids, lsn) }, hurry(ctx, server{db}, lsn), tell)
}

// drain asks how far it is until nothing is left or moves.
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
