package report

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Left is how far a pipeline is with everything before an LSN.
type Left struct {
	Pipeline  string
	Decoded   bool // all of it is in the queue or done
	Rows      int64
	Running   int64 // in work at this moment
	Failed    int64 // dead letters: not waited for
	Cancelled int64 // rows that somebody took out of the queue: not waited for
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
	return drain(ctx, func() ([]Left, error) { return DrainState(ctx, db, ids, lsn) }, func() error {
		wanted := lsn.String()
		_, err := server{db}.ask(ctx, &wanted)
		return err
	}, tell)
}

// drain asks how far it is until nothing is left or moves, and has the streamer hurry where that helps.
func drain(ctx context.Context, at func() ([]Left, error), hurry func() error, tell func([]Left)) (list []Left,
	err error,
) {
	const (
		shortest, longest = 5 * time.Millisecond, 500 * time.Millisecond
		first, again      = 100 * time.Millisecond, time.Second // who has just asked is mostly answered before
	)
	next := time.Now().Add(first)
	for pause := shortest; ; pause = min(2*pause, longest) {
		began := time.Now()
		now, err := at()
		switch {
		case ctx.Err() != nil:
			return list, context.Cause(ctx)
		case err != nil:
			return list, err
		}
		list = now
		tell(list)
		ends, decoded := true, true
		for i := range list {
			ends = ends && (list[i].Drained() || list[i].Stands())
			decoded = decoded && list[i].Decoded
		}
		if ends {
			return list, nil
		}
		if now := time.Now(); now.After(next) && !decoded {
			next = now.Add(again)
			if err := hurry(); err != nil && ctx.Err() == nil {
				return list, err
			}
		}
		if !sleep.For(ctx, max(pause, 2*time.Since(began))) { // what waits in a million is dear to count
			return list, context.Cause(ctx)
		}
	}
}
