package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/failpoint"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// A scan looks at a page of keys at a time and leaves no more than this many of its tasks waiting, so that a table of any size
// costs the queue a constant.
const (
	scanPage  = 1000
	scanAhead = 4 * scanPage
)

// Scan is a pipeline's backfill and reconcile: it compares every row with the ledger, then every ledger entry with the rows, and
// asks for a look where they differ. Its progress is stored page by page, so any sidecar may go on where another stopped.
type Scan struct {
	w *Worker
}

// NewScan returns the scan of a worker's pipeline.
func NewScan(w *Worker) *Scan { return &Scan{w} }

// scanState is the stored progress.
type scanState struct {
	Phase, Reason      string
	AfterKey           *string
	Requested, Started int64
	MayStart           bool
}

// Run does what scans are asked for until ctx ends. wake tells that one may have been; without it the heartbeat finds out.
func (s *Scan) Run(ctx context.Context, heartbeat time.Duration, wake <-chan struct{}) error {
	const shortest, longest = 20 * time.Millisecond, time.Second
	pause := shortest
	for {
		next, err := s.step(ctx)
		if err != nil && ctx.Err() == nil {
			s.w.parks(ctx, err)
			s.w.o.Log.WarnContext(ctx, "scan interrupted", "pipeline", s.w.o.Pipeline.Name, "error", err)
			next = stepLater
		}
		switch next {
		case stepNow:
			pause = shortest
		case stepLater:
			if !sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, longest)
		case stepIdle:
			t := time.NewTimer(heartbeat)
			select {
			case <-ctx.Done():
				t.Stop()
				return nil
			case <-wake:
				t.Stop()
			case <-t.C:
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// step tells when the next one is due.
type step int

const (
	stepNow   step = iota
	stepLater      // the queue is full enough, or transactions must end first
	stepIdle       // nothing is asked for
)

func (s *Scan) step(ctx context.Context) (step, error) {
	p := s.w.o.Pipeline
	tx, err := s.w.o.DB.Begin(ctx)
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var st scanState
	err = tx.QueryRow(ctx, sqlfiles.Query("lock_scan"), pgx.StrictNamedArgs{"pipeline_id": p.ID}).
		Scan(&st.Phase, &st.Reason, &st.AfterKey, &st.Requested, &st.Started, &st.MayStart)
	if errors.Is(err, pgx.ErrNoRows) {
		return stepIdle, nil
	}
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	var (
		seen, made int
		begin      bool
	)
	switch st.Phase {
	case "waiting":
		if !st.MayStart {
			return stepLater, nil
		}
		begin, st.Phase, st.AfterKey, st.Started = true, "rows", nil, st.Requested
		s.w.o.Log.InfoContext(ctx, "scan started", "pipeline", p.Name, "reason", st.Reason)
	default:
		if full, err := s.full(ctx, tx); err != nil || full {
			return stepLater, err
		}
		var keys []string
		if st.Phase == "rows" {
			keys, made, err = s.rows(ctx, tx, st.AfterKey)
		} else {
			keys, made, err = s.orphans(ctx, tx, st.AfterKey)
		}
		if err != nil {
			return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
		}
		if seen = len(keys); seen > 0 {
			st.AfterKey = &keys[seen-1]
		} else {
			s.advance(&st)
		}
	}
	_, err = tx.Exec(ctx, sqlfiles.Query("save_scan"), pgx.StrictNamedArgs{
		"pipeline_id": p.ID, "phase": st.Phase, "after_key": st.AfterKey, "started": st.Started, "begin": begin,
		"seen": seen, "made": made, "table": p.OID,
	})
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	if err := failpoint.Hit("worker/before-scan-commit"); err != nil {
		return stepLater, err
	}
	if err := tx.Commit(ctx); err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	if made > 0 {
		s.w.o.Queue.Wake(p.ID)
	}
	if st.Phase == "done" {
		s.w.o.Log.InfoContext(ctx, "scan finished", "pipeline", p.Name, "reason", st.Reason)
	}
	return stepNow, nil
}

// advance goes to the next phase, or to the beginning if another scan was asked for meanwhile.
func (s *Scan) advance(st *scanState) {
	st.AfterKey = nil
	switch {
	case st.Phase == "rows":
		st.Phase = "orphans"
	case st.Requested > st.Started:
		st.Phase = "waiting"
	default:
		st.Phase = "done"
	}
}

func (s *Scan) full(ctx context.Context, tx pgx.Tx) (bool, error) {
	var open int
	err := tx.QueryRow(ctx, sqlfiles.Query("open_tasks"), pgx.StrictNamedArgs{"pipeline_id": s.w.o.Pipeline.ID, "max": scanAhead}).Scan(&open)
	if err != nil {
		return false, fmt.Errorf("count open tasks: %w", err)
	}
	return open >= scanAhead, nil
}

// rows asks for a look at those rows of the next page that differ from the ledger or are not in it.
func (s *Scan) rows(ctx context.Context, tx pgx.Tx, after *string) (keys []string, made int, err error) {
	p := s.w.o.Pipeline
	sql, args := s.w.sql.first, []any{scanPage}
	if after != nil {
		values, err := pipeline.SplitKey(*after, len(p.Key))
		if err != nil {
			return nil, 0, err
		}
		sql = s.w.sql.page
		for _, v := range values {
			args = append(args, v)
		}
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, 0, err
	}
	var (
		key           string
		isKnown       bool
		differ, known []string
	)
	_, err = pgx.ForEachRow(rows, []any{&key, &isKnown}, func() error {
		keys = append(keys, key)
		if isKnown {
			known = append(known, key)
		} else {
			differ = append(differ, key)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	if len(known) > 0 {
		found, err := s.w.read(ctx, known)
		if rowsFault(err) {
			differ = append(differ, known...) // the worker finds the row at fault
		} else if err != nil {
			return nil, 0, err
		}
		for i := range found {
			if !found[i].unchanged(p) {
				differ = append(differ, known[i])
			}
		}
	}
	return keys, len(differ), queue.Add(ctx, tx, p.ID, pipeline.Low, differ)
}

// orphans asks for a look at those keys of the next page of the ledger that have no row.
func (s *Scan) orphans(ctx context.Context, tx pgx.Tx, after *string) (keys []string, made int, err error) {
	p := s.w.o.Pipeline
	rows, err := tx.Query(ctx, sqlfiles.Query("ledger_page"),
		pgx.StrictNamedArgs{"pipeline_id": p.ID, "after": after, "max": scanPage})
	if err != nil {
		return nil, 0, err
	}
	keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(keys) == 0 {
		return nil, 0, err
	}
	args, err := keyArrays(p, keys)
	if err != nil {
		return nil, 0, err
	}
	rows, err = tx.Query(ctx, s.w.sql.gone, append(args, keys)...)
	if err != nil {
		return nil, 0, err
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, 0, err
	}
	return keys, len(gone), queue.Add(ctx, tx, p.ID, pipeline.Low, gone)
}
