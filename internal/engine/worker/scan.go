package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// scanAhead is the maximum number of a scan's open tasks, so that a table of any size needs constant space in the
// queue.
const scanAhead = 4 * rows.PageRows

// Scan is a pipeline's backfill and reconciliation: it compares every row with the ledger, then every ledger entry with
// the rows, and creates tasks for differences. Its progress is stored per page, so any sidecar may continue it.
type Scan struct {
	w        *Worker
	pages    pages
	stray    *string // last key of the embedding table read in the second phase; nil: from the start
	life     time.Time
	progress progress
	waits    time.Time // when to log the blockers next; zero: not waiting
}

// NewScan returns the scan of a worker's pipeline.
func NewScan(w *Worker) *Scan { return &Scan{w: w, pages: w.pages()} }

// Run works on requested scans each time it is woken, until ctx ends.
func (s *Scan) Run(ctx context.Context, heartbeat time.Duration, wake <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			s.work(ctx, heartbeat)
		}
	}
}

// work continues until no scan is requested.
func (s *Scan) work(ctx context.Context, heartbeat time.Duration) {
	const shortest, longest = 20 * time.Millisecond, time.Second
	for pause := shortest; ctx.Err() == nil; {
		next, err := s.step(ctx)
		if err != nil && ctx.Err() == nil {
			if unfits(err) && s.w.o.Broken != nil {
				s.w.o.Broken()
			}
			s.w.o.Log.WarnContext(ctx, "scan interrupted", "pipeline", s.w.o.Pipeline.Name, "error", quiet(err))
			next = stepLater
		}
		if next == stepIdle {
			s.progress = progress{}
			return
		}
		s.tell(ctx, heartbeat)
		if next == stepNow {
			pause = shortest
			continue
		}
		sleep.For(ctx, pause)
		pause = min(2*pause, longest)
	}
}

// step tells when the next step is due.
type step int

const (
	stepNow   step = iota
	stepLater      // the queue is full, the stream does not know the pipeline yet, or transactions must end first
	stepIdle       // no scan is requested
)

// step processes one page. It reads without an open transaction, so that a TRUNCATE or ALTER TABLE never waits for a
// lock of ours that waits for another of ours. Then it creates the tasks, unless another process did the page
// meanwhile.
func (s *Scan) step(ctx context.Context) (step, error) {
	p := s.w.o.Pipeline
	st, err := s.w.store.readScan(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return stepIdle, nil
	}
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	if !st.Routed {
		return stepLater, nil // a scan before the routes would have to be repeated
	}
	var (
		keys, look []string
		before     = st
		begin      = st.Phase == phaseWaiting
	)
	if st.Phase != phaseOrphans || !st.Life.Equal(s.life) {
		s.stray = nil
	}
	s.life = st.Life
	if begin {
		if !st.MayStart {
			s.tellBlockers(ctx, st.Barrier)
			return stepLater, nil
		}
		s.waits = time.Time{}
		st.Phase, st.AfterKey, st.Started = phaseRows, nil, st.Requested
		s.w.o.Log.InfoContext(ctx, "scan started", "pipeline", p.Name, "reason", st.Reason)
	} else {
		if full, err := s.full(ctx, &st); err != nil || full {
			return stepLater, err
		}
		if st.Phase == phaseRows {
			keys, look, err = s.rows(ctx, &st, st.AfterKey)
			if err != nil && st.AfterKey != nil && !s.w.table.IsKey(ctx, *st.AfterKey) {
				keys, look, err = s.rows(ctx, &st, nil) // the key's type changed since the scan began
			}
		} else {
			keys, look, err = s.orphans(ctx, st.AfterKey)
		}
		if err != nil {
			return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
		}
		if n := len(keys); n > 0 {
			st.AfterKey = &keys[n-1]
		} else if len(look) == 0 {
			if waits, err := s.jobsLeft(ctx, &st); err != nil || waits {
				return stepLater, err
			}
			s.advance(&st)
		}
	}
	seen := len(keys)
	if before.Phase != phaseRows {
		seen = 0 // ledger entries: their rows were counted before
	}
	if err := failpoint.Hit("worker/before-scan-commit"); err != nil {
		return stepLater, err
	}
	saved, err := s.w.store.saveScan(ctx, &before, &st, begin, seen, look, s.gathers(&before))
	if err != nil || !saved {
		s.stray = nil // strays found so far got no tasks
	}
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	if !saved { // another sidecar did the page, or the server restarted from an earlier state
		return stepLater, nil
	}
	if len(look) > 0 && !s.gathers(&before) {
		s.w.tasks.Wake(p.ID)
	}
	if st.Phase == phaseDone {
		s.w.o.Log.InfoContext(ctx, "scan finished", "pipeline", p.Name, "reason", st.Reason)
	}
	return stepNow, nil
}

// tellBlockers logs from time to time which transactions the scan waits for.
func (s *Scan) tellBlockers(ctx context.Context, barrier string) {
	const first, again = 3 * time.Second, time.Minute
	now := time.Now()
	if s.waits.IsZero() {
		s.waits = now.Add(first)
	}
	if now.Before(s.waits) {
		return
	}
	s.waits = now.Add(again)
	if list, err := s.w.store.blockers(ctx, barrier); err == nil && len(list) > 0 {
		s.w.o.Log.WarnContext(ctx, "scan waits for open transactions", "pipeline", s.w.o.Pipeline.Name, "transactions",
			strings.Join(database.Named(list), "; "))
	}
}

// advance moves to the next phase, or to the start if another scan was requested meanwhile.
func (s *Scan) advance(st *scanState) {
	st.AfterKey = nil
	switch {
	case st.Phase == phaseRows && (st.Lost || !st.Parts):
		st.Phase = phaseOrphans
	case st.Requested > st.Started:
		st.Phase = phaseWaiting
	default:
		st.Phase = phaseDone
	}
}

// full reports whether enough of the scan's tasks are open. Retries count too: an embedder that fails every text must
// not get a whole table.
func (s *Scan) full(ctx context.Context, st *scanState) (bool, error) {
	if s.gathers(st) {
		return s.jobsFull(ctx)
	}
	open, err := s.w.tasks.Backlog(ctx, s.w.o.Pipeline.ID, scanAhead)
	return open >= scanAhead, err
}

// rows returns the next page of keys of the source table, and those that differ from the ledger or are missing from it.
func (s *Scan) rows(ctx context.Context, st *scanState, after *string) (keys, look []string, err error) {
	which := ""
	switch {
	case st.Which != nil:
		which = *st.Which
	case st.Parts:
		return nil, nil, nil
	}
	keys, known, err := s.pages.Rows(ctx, which, after)
	if which != "" && rows.Fault(err) == database.Data { // a value has an outdated type: check every row
		keys, known, err = s.pages.Rows(ctx, "", after)
	}
	if err != nil {
		return nil, nil, err
	}
	var compare []string
	for i, key := range keys {
		if len(key) > pipeline.MaxKey {
			s.w.o.Log.WarnContext(ctx, "row left out: its key is too long for an index of the queue", "pipeline",
				s.w.o.Pipeline.Name, "bytes", len(key))
		} else if known[i] {
			compare = append(compare, key)
		} else {
			look = append(look, key)
		}
	}
	differ := func(found []rows.Row) {
		for i := range found {
			if r := &found[i]; !s.w.table.Unchanged(r) && !s.w.table.Skipped(r) {
				look = append(look, found[i].Key)
			}
		}
	}
	// The worker reports the problem of an unreadable row.
	err = s.pages.Read(ctx, compare, differ, func(key string, _ error) { look = append(look, key) })
	if err != nil {
		return nil, nil, err
	}
	return keys, look, nil
}

// orphans returns the next page of keys of the ledger, and those without a row; after the last page, the strays.
func (s *Scan) orphans(ctx context.Context, after *string) (keys, look []string, err error) {
	keys, err = s.w.store.ledgerPage(ctx, after)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 {
		look, err = s.strays(ctx)
		return nil, look, err
	}
	keys, look, err = s.pages.Gone(ctx, keys)
	if rows.Fault(err) == database.Data {
		return keys, keys, nil // a key is no longer valid for its column's type; the worker handles it
	}
	return keys, look, err
}

// progress is the last logged progress. It is logged once per heartbeat of the scan (a minute): a large table takes
// hours.
type progress struct {
	told time.Time
	seen int64 // rows seen at that time
}

// tell is called after each step of an unfinished scan.
func (s *Scan) tell(ctx context.Context, every time.Duration) {
	if s.progress.told.IsZero() {
		s.progress.told = time.Now()
	}
	since := time.Since(s.progress.told)
	if since < every {
		return
	}
	p := s.w.o.Pipeline
	phase, seen, expected, err := s.w.store.scanProgress(ctx)
	if err != nil {
		return // the next step reports it
	}
	rate := float64(max(seen-s.progress.seen, 0)) / since.Seconds()
	args := []any{"pipeline", p.Name, "phase", phase, "rows_seen", seen, "rows_per_second", int64(rate)}
	if expected > seen && rate > 0 {
		args = append(args, "rows_expected", expected, "left",
			(time.Duration(float64(expected-seen)/rate) * time.Second).String())
	}
	s.w.o.Log.InfoContext(ctx, "scan in progress", args...)
	s.progress = progress{time.Now(), seen}
}

// strays returns keys of an embedding table that are neither in the source table nor in the ledger: from a source table
// that was dropped and recreated, or from the previous owner of an adopted embedding table. It returns them in
// portions, without those that have a task. It returns none once the whole table was read without finding one.
func (s *Scan) strays(ctx context.Context) (found []string, err error) {
	for len(found) < rows.PageRows {
		keys, gone, err := s.pages.Vectors(ctx, s.stray)
		if err != nil {
			s.stray = nil // it may no longer be a valid key
			return nil, err
		}
		if len(keys) == 0 {
			s.stray = nil // the next call starts over
			break
		}
		s.stray = &keys[len(keys)-1]
		var strays []string
		for i, key := range keys {
			if gone[i] && len(key) <= pipeline.MaxKey {
				strays = append(strays, key)
			}
		}
		if strays, err = s.withoutTask(ctx, strays); err != nil {
			return nil, err
		}
		found = append(found, strays...)
	}
	return found, nil
}

// withoutTask returns the keys that have no task.
func (s *Scan) withoutTask(ctx context.Context, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys, err := s.w.store.withoutTask(ctx, keys)
	return keys, wrap.Errorf(err, "look for tasks")
}
