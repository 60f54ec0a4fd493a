package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// CaughtUp is how far a slot's pipelines are with everything before an LSN.
type CaughtUp struct {
	Decoded bool  `json:"decoded"` // all of it is in the queue or done
	Open    int64 `json:"open"`    // tasks for it that are not done
	Scans   int64 `json:"scans"`   // pipelines whose scan is not over
	// pipelines whose table was altered and not looked at since; counted when nothing else is left
	Altered int64    `json:"altered"`
	Failed  int64    `json:"failed"`  // dead letters for it: not waited for
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
	return ordered(
		func() (CaughtUp, error) { return at(ctx, db, slot, lsn) },
		func() (int64, error) { return altered(ctx, db, slot) },
	)
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

// altered counts the pipelines of which the catalogue says something else than the streamer has seen.
func altered(ctx context.Context, db database.DB, slot string) (n int64, err error) {
	rows, err := db.Query(ctx, sqlfiles.Query("pipeline_catalogue"), pgx.StrictNamedArgs{"slot": slot})
	if err != nil {
		return 0, fmt.Errorf("look at the catalogue: %w", err)
	}
	defer rows.Close()
	column := func(name string) int {
		return slices.IndexFunc(rows.FieldDescriptions(), func(f pgconn.FieldDescription) bool { return f.Name == name })
	}
	known, current := column("known"), column("current")
	for rows.Next() {
		if values := rows.RawValues(); !bytes.Equal(values[known], values[current]) { // jsonb: equal content has equal bytes
			n++
		}
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("look at the catalogue: %w", err)
	}
	return n, nil
}

func at(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	var (
		c           CaughtUp
		anyPipeline bool
	)
	err := db.QueryRow(ctx, sqlfiles.Query("caught_up"), pgx.StrictNamedArgs{"slot": slot, "lsn": lsn.String()}).
		Scan(&c.Decoded, &c.Open, &c.Scans, &c.Failed, &c.Resting, &c.Unrouted, &anyPipeline)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrNoSlot
	}
	if err != nil {
		return c, fmt.Errorf("ask how far slot %q is: %w", slot, err)
	}
	if !anyPipeline {
		return c, ErrNoPipeline
	}
	return c, nil
}

// Now returns an LSN that everything committed before this call lies below, and makes the streamer persist its
// position as soon as it gets there: an idle one otherwise saves itself the write.
func Now(ctx context.Context, db database.DB) (pglogrepl.LSN, error) { return ask(ctx, db, nil) }

// ask makes the streamer persist its position as soon as it reaches an LSN; nil: that of now.
func ask(ctx context.Context, db database.DB, lsn *string) (at pglogrepl.LSN, err error) {
	var setting, notified string
	err = db.QueryRow(ctx, sqlfiles.Query("ask_streamer"), pgx.StrictNamedArgs{
		"channel": queue.Waiting,
		"lsn":     lsn,
	}).Scan(&at, &setting, &notified)
	if err != nil {
		return 0, fmt.Errorf("ask the streamer to hurry: %w", err)
	}
	return at, nil
}

// Wait waits until a slot's pipelines have caught up with an LSN. When ctx ends first it returns how far they are and
// ctx's error.
func Wait(ctx context.Context, db database.DB, slot string, lsn pglogrepl.LSN) (CaughtUp, error) {
	wanted := lsn.String()
	return wait(ctx,
		func() (CaughtUp, error) { return At(ctx, db, slot, lsn) },
		func() error {
			_, err := ask(ctx, db, &wanted)
			return err
		})
}

// wait asks how far it is until nothing is left, and has the streamer hurry where that helps.
func wait(ctx context.Context, at func() (CaughtUp, error), hurry func() error) (CaughtUp, error) {
	const (
		shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
		first, again      = 100 * time.Millisecond, time.Second // who has just asked is mostly answered before
	)
	next := time.Now().Add(first)
	for pause := shortest; ; pause = min(2*pause, longest) {
		c, err := at()
		if err != nil && ctx.Err() == nil || err == nil && c.Yes() {
			return c, err
		}
		// Without it the streamer looks at its next heartbeat, and stores an idle position after ten minutes. One that has
		// just begun has not heard what was asked before.
		if now := time.Now(); now.After(next) && c.streamersTurn() {
			next = now.Add(again)
			if err := hurry(); err != nil && ctx.Err() == nil {
				return c, err
			}
		}
		if !sleep.For(ctx, pause) {
			return c, context.Cause(ctx)
		}
	}
}
