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

// A scan looks at a page of keys at a time, and leaves no more than this many of its tasks waiting, so that a table
// of any size costs the queue a constant.
const scanAhead = 4 * rows.PageRows

// Scan is a pipeline's backfill and reconcile: it compares every row with the ledger, then every ledger entry with
// the rows, and asks for a look where they differ. Its progress is stored page by page, so any sidecar may go on
// where another stopped.
type Scan struct {
	w        *Worker
	pages    pages
	stray    *string // the last key of the embedding table that was looked at in the second phase, if that is not over
	life     time.Time
	progress progress
	waits    time.Time // when whom it waits for is told next; zero: it does not wait
}

// NewScan returns the scan of a worker's pipeline.
func NewScan(w *Worker) *Scan { return &Scan{w: w, pages: w.pages()} }

// Run does what scans are asked for until ctx ends, each time that it is woken because there may be one.
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

// work goes on until nothing is asked for.
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

// step tells when the next one is due.
type step int

const (
	stepNow   step = iota
	stepLater      // the queue is full enough, the streamer does not know the pipeline yet, or transactions must end first
	stepIdle       // nothing is asked for
)

// step does one page: it looks first, with no transaction open, so that nobody who truncates or alters the table
// meets a lock of ours that waits for another of ours; then it makes the tasks, if nobody else did the page
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
		return stepLater, nil // routes first, then the scan that need not be repeated
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
				keys, look, err = s.rows(ctx, &st, nil) // the key has another type than when the scan began
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
		seen = 0 // entries of the ledger: their rows were seen
	}
	if err := failpoint.Hit("worker/before-scan-commit"); err != nil {
		return stepLater, err
	}
	saved, err := s.w.store.saveScan(ctx, &before, &st, begin, seen, look, s.gathers(&before))
	if err != nil || !saved {
		s.stray = nil // no task may stand for what was found up to there
	}
	if err != nil {
		return stepLater, fmt.Errorf("scan %s: %w", p.Source(), err)
	}
	if !saved { // another sidecar has moved the scan and has the page, or the server has lost what was read
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

// tellBlockers says from time to time for whom the scan waits.
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

// advance goes to the next phase, or to the beginning if another scan was asked for meanwhile.
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

// full reports whether enough of the scan's tasks are open. Those that wait for another try count: an embedder that
// refuses every text must not be sent a whole table.
func (s *Scan) full(ctx context.Context, st *scanState) (bool, error) {
	if s.gathers(st) {
		return s.jobsFull(ctx)
	}
	open, err := s.w.tasks.Backlog(ctx, s.w.o.Pipeline.ID, scanAhead)
	return open >= scanAhead, err
}

// rows returns the next page of keys of the source table, and those of them that differ from the ledger or are not in
// it.
func (s *Scan) rows(ctx context.Context, st *scanState, after *string) (keys, look []string, err error) {
	which := ""
	switch {
	case st.Which != nil:
		which = *st.Which
	case st.Parts:
		return nil, nil, nil
	}
	keys, known, err := s.pages.Rows(ctx, which, after)
	if which != "" && rows.Fault(err) == database.Data { // a value in it is of a type of before: any row may be meant
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
	// What is the matter with a row that cannot be read is for the worker to say.
	err = s.pages.Read(ctx, compare, differ, func(key string, _ error) { look = append(look, key) })
	if err != nil {
		return nil, nil, err
	}
	return keys, look, nil
}

// orphans returns the next page of keys of the ledger, and those of them that have no row; after the last page, what
// else has none.
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
		return keys, keys, nil // a key that is no value of the column's type any more; the worker finds it
	}
	return keys, look, err
}

// progress tells the log how far a scan is, once per heartbeat of the scan, which is a minute: a large table takes
// hours, and between its start and its end nothing else would be said.
type progress struct {
	told time.Time
	seen int64 // when it was told, of those of the scan
}

// tell is called after each step of a scan that goes on.
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
		return // the next step meets it as well
	}
	rate := float64(max(seen-s.progress.seen, 0)) / since.Seconds()
	args := []any{"pipeline", p.Name, "phase", phase, "rows_seen", seen, "rows_per_second", int64(rate)}
	if expected > seen && rate > 0 {
		args = append(args, "rows_expected", expected, "left",
			(time.Duration(float64(expected-seen)/rate) * time.Second).String())
	}
	s.w.o.Log.InfoContext(ctx, "scan goes on", args...)
	s.progress = progress{time.Now(), seen}
}

// strays returns keys of an embedding table that neither the source table nor the ledger knows: of a source table
// that was dropped and recreated, or of the one who filled an embedding table that was taken over. They are given in
// portions, without those that have a task already. The table is read by pages; when none was found up to its end,
// there are none.
func (s *Scan) strays(ctx context.Context) (found []string, err error) {
	for len(found) < rows.PageRows {
		keys, gone, err := s.pages.Vectors(ctx, s.stray)
		if err != nil {
			s.stray = nil // it may be no key any more
			return nil, err
		}
		if len(keys) == 0 {
			s.stray = nil // the next call begins again
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

// withoutTask leaves out keys that will be looked at anyway.
func (s *Scan) withoutTask(ctx context.Context, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys, err := s.w.store.withoutTask(ctx, keys)
	return keys, wrap.Errorf(err, "look for tasks")
}
