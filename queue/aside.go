package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// enqueueAside stores changes and scan requests for later.
func (q *Queue) enqueueAside(ctx context.Context, tx pgx.Tx, changes []Change, b Batch) (Enqueued, error) {
	// The partitions and owners of a scan are not stored: all rows are compared.
	scans := slices.AppendSeq(slices.Collect(maps.Keys(b.Scans)), maps.Keys(b.Owners))
	args := argsOf(changes)
	args["scans"], args["reason"] = scans, b.ScanReason
	if _, err := tx.Exec(ctx, sqlfiles.Query("set_aside"), args); err != nil {
		return Enqueued{}, fmt.Errorf("set %d changes aside: %w", len(changes), err)
	}
	if err := tx.Commit(ctx); err != nil {
		return Enqueued{}, fmt.Errorf("commit %d changes: %w", len(b.Changes), err)
	}
	q.noteAside()
	return Enqueued{Made: len(changes)}, nil
}

// noteAside wakes RunAside.
func (q *Queue) noteAside() {
	sleep.Wake(q.aside)
}

// RunAside turns changes that were set aside into tasks, until ctx ends. It runs when woken, and retries while some are
// left.
func (q *Queue) RunAside(ctx context.Context, failed func(error)) error {
	const again = 500 * time.Millisecond
	for from := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-q.aside:
		}
		left, err := q.moveAll(ctx, &from)
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		if err != nil || left {
			if !sleep.For(ctx, again) {
				return nil
			}
			q.noteAside()
		}
	}
}

// moveAll processes what was set aside, starting after *from. If a portion runs into a lock, it is halved until the
// locked change is alone; that one stays. After enough of them it stops, and the next call continues there. left
// reports whether another call is needed.
func (q *Queue) moveAll(ctx context.Context, from *int64) (left bool, err error) {
	const most, enough = 256, 50
	left = *from > 0
	for n, alone := most, 0; ; {
		m, err := q.moveSome(ctx, *from, n)
		switch {
		case database.LockedOut(err) && n > 1:
			n = (n + 1) / 2
			continue
		case database.LockedOut(err):
			m.held = true
			alone++
		case err != nil:
			return left, err
		}
		left = left || m.held
		if m.last == 0 {
			*from = 0
			return left, nil
		}
		*from, n = m.last, min(2*n, most)
		if alone == enough {
			return true, nil
		}
	}
}

// moved is the outcome of one portion.
type moved struct {
	last int64 // the last aside_id; 0: none left
	held bool  // other sessions hold some of it
}

// moveSome makes tasks of at most the given number of rows after an aside_id.
func (q *Queue) moveSome(ctx context.Context, after int64, most int) (m moved, err error) {
	tx, err := database.Begin(ctx, q.db)
	if err != nil {
		return m, fmt.Errorf("read changes set aside: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	// The session that holds a row may wait for one that we hold: a short wait lets it continue sooner.
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 20"); err != nil {
		return m, err
	}
	rows, err := tx.Query(ctx, sqlfiles.Query("take_aside"), pgx.StrictNamedArgs{"after": after, "max": most})
	if err != nil {
		return m, fmt.Errorf("take changes set aside: %w", err)
	}
	var (
		ids     []int64
		changes []Change
		scans   = map[string][]int32{}
		id      int64
		one     int32
		key     *string
		lane    int16
		first   pglogrepl.LSN
		last    pglogrepl.LSN
		at      time.Time
		reason  string
		held    bool
	)
	into := []any{&id, &one, &key, &lane, &first, &last, &at, &reason, &held}
	if _, err = pgx.ForEachRow(rows, into, func() error {
		m.last, m.held = id, m.held || held
		switch {
		case held:
			return nil
		case key == nil:
			scans[reason] = append(scans[reason], one)
		default:
			changes = append(changes, Change{
				PipelineID: one, RowKey: *key, Lane: pipeline.Lane(lane), LSN: last, FirstLSN: first, CommittedAt: at,
			})
		}
		ids = append(ids, id)
		return nil
	}); err != nil {
		return m, fmt.Errorf("take changes set aside: %w", err)
	}
	if len(ids) == 0 {
		return m, nil
	}
	for reason, pipelines := range scans {
		if err := RequestScan(ctx, tx, reason, pipelines); err != nil {
			return m, err
		}
	}
	changes = Merge(changes)
	_, touched, err := upsert(ctx, tx, changes)
	if err != nil {
		return m, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM embedsidecar.aside WHERE aside_id = ANY ($1)", ids); err != nil {
		return m, fmt.Errorf("take changes set aside: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return m, fmt.Errorf("enqueue %d changes set aside: %w", len(changes), err)
	}
	q.wakeLanes(touched)
	return m, nil
}
