package worker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/queue"
)

// mostLocked is how many lock timeouts a batch may hit while it is halved to isolate the locked rows.
const mostLocked = 12

// finish writes a batch back in portions. It halves a rejected portion until the row at fault is alone.
func (w *Worker) finish(ctx context.Context, items []item) error {
	locked := 0
	return w.finishParts(ctx, items, &locked)
}

func (w *Worker) finishParts(ctx context.Context, items []item, locked *int) error {
	for len(items) > 0 {
		n := w.portion(items)
		err := w.writeInTime(ctx, items[:n])
		if err == nil {
			items = items[n:]
			continue
		}
		if items[0].task.IsDirect() {
			return err
		}
		all := w.ofAll(ctx, err, w.writeNone)
		if rows.Fault(err) == database.Locked {
			w.met.note()
			*locked++
		}
		switch {
		case rows.Fault(all) == database.Locked || *locked > mostLocked:
			// Another session alters the table or builds an index, or holds what a trigger waits for: smaller batches
			// would wait just as long.
			delay := lockedDelay(items[0].task, time.Now())
			return w.postpone(ctx, tasksOf(items), embed.Transient, "locked",
				"the table, or what a trigger of it waits for, is locked by another session", delay)
		case unfits(all), w.unfilled(err):
			return w.park(ctx, tasksOf(items), err)
		case all != nil:
			return all
		case n == 1:
			it := &items[0]
			it.action, it.err = broken, w.rowError(it.task, err, "write_refused", w.refusal(it, err))
			it.slow = tookTooLong(err)
			if err := w.writeBack(ctx, items[:n]); err != nil {
				return err
			}
		default:
			for _, half := range [][]item{items[:n/2], items[n/2 : n]} {
				if err := w.finishParts(ctx, half, locked); err != nil {
					return err
				}
			}
		}
		items = items[n:]
	}
	return nil
}

// writeInTime is writeBack. A pipeline whose write-backs lately took too long does not fill the pool with them.
func (w *Worker) writeInTime(ctx context.Context, items []item) error {
	if items[0].task.IsDirect() { // the stream does not wait
		return w.writeBack(ctx, items)
	}
	leave, err := w.over.enter(ctx, w.o.Overtime)
	if err != nil {
		return err
	}
	defer leave()
	err = w.writeBack(ctx, items)
	w.over.note(err)
	return err
}

// heldRows is how many users' rows a write-back to a column locks until it commits. Meanwhile writers of these rows
// wait unnoticed, and NOWAIT fails. A quarter of the rows halves the collisions. It is neither smaller nor adapted to
// the duration: each write-back costs four round trips, and a busy machine would then have more of them.
const heldRows = 64

// portion returns how many items the next write-back takes: all of them for an embedding table, whose rows only we
// write.
func (w *Worker) portion(items []item) int {
	if !w.table.OfUsers() || w.o.HeldRows < 0 {
		return len(items)
	}
	held := 0
	for i := range items {
		if !items[i].touches() {
			continue
		}
		if held == w.o.HeldRows {
			return i
		}
		held++
	}
	return len(items)
}

// changeOf returns what the items of one write-back do to the destination.
func changeOf(items []item, generation int32) rows.Change {
	var c rows.Change
	for i := range items {
		it := &items[i]
		switch it.action {
		case vectorIn:
			c.Write = append(c.Write, it.write())
		case empty:
			if it.touches() {
				c.Empty = append(c.Empty, it.task.RowKey)
			}
		case gone:
			if !it.nobody { // the destination has the same key type: nothing to remove
				c.Remove = append(c.Remove, it.task.RowKey)
			}
		case relabel:
			if it.row.StoredGeneration != 0 && it.row.StoredGeneration != generation {
				c.Adopt = append(c.Adopt, it.task.RowKey)
			}
		case skip, alias, nothing, broken:
		}
	}
	return c
}

// write returns the write of an item with a vector.
func (it *item) write() rows.Write {
	return rows.Write{
		Key: it.task.RowKey, TextHash: it.row.TextHash[:], Vector: it.vector, Text: it.row.Text, Chunks: it.chunks,
	}
}

// writeBack runs one transaction: check the lease, lock the rows of a column (skipping locked ones), pass the fence,
// write vectors; then finish the tasks together with the commit. Before that it holds no lock that the stream may wait
// for, however long a user's trigger takes and whenever this process stops.
func (w *Worker) writeBack(ctx context.Context, items []item) error {
	if !slices.ContainsFunc(items, func(it item) bool { return it.action != nothing && it.action != broken }) {
		return w.finishOnly(ctx, items)
	}
	d := items[0].task.Lease.Direct
	if w.atOnce(d, items) {
		return w.writeAtOnce(ctx, d, items)
	}
	began := time.Now()
	b, err := w.begin(ctx, items)
	if b.transaction != nil {
		defer b.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if !b.held {
		return w.overdue(len(items)) // another worker has these tasks: nothing may be written
	}
	if err := reached(items[0].task, "after-fence"); err != nil {
		return err
	}
	mine, outcomes := w.judge(items, b.locked, b.passed)
	c := changeOf(mine, w.o.Pipeline.Generation)
	moved := w.restless.watch(&c) // filled by write
	if err := b.write(ctx, &c); err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if err := reached(items[0].task, "before-commit"); err != nil {
		return err
	}
	done, err := b.commit(ctx, outcomes)
	if err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	w.traceWritten(ctx, mine, began)
	if err := reached(items[0].task, "after-commit"); err != nil {
		return err
	}
	if !items[0].task.IsDirect() {
		if done == (queue.Finished{}) { // the pipeline changed after the fence
			return w.overdue(len(items))
		}
		w.tasks.Note(w.o.Pipeline.ID, outcomes, done)
	}
	w.restless.note(c.Write, *moved)
	w.noteEnd(ctx, items, mine, outcomes, done)
	return nil
}

// finishOnly ends a batch without anything to write.
func (w *Worker) finishOnly(ctx context.Context, items []item) error {
	mine, outcomes := w.judge(items, nil, nil)
	done, err := w.tasks.Finish(ctx, w.o.ID, items[0].task.Lease, w.o.Pipeline.Generation, outcomes)
	if err != nil {
		return err
	}
	if done == (queue.Finished{}) {
		return w.overdue(len(items))
	}
	w.noteEnd(ctx, items, mine, outcomes, done)
	return nil
}

// noteEnd records how items ended; mine are those that were written.
func (w *Worker) noteEnd(ctx context.Context, items, mine []item, outcomes []queue.Outcome, done queue.Finished) {
	w.noteOutcomes(ctx, outcomes, done)
	w.count(mine, done)
	w.noteFate(ctx, items)
}

// overdue ends a batch whose lease was lost before all rows were done: queue.ErrLeaseLost.
func (w *Worker) overdue(n int) error {
	w.stats.Fenced.Add(int64(n))
	return queue.ErrLeaseLost
}

// judge returns the outcome of each item, and which of them are written: not those that are locked or did not pass the
// fence.
func (w *Worker) judge(items []item, locked *rows.Locks, passed map[string]bool) (mine []item,
	outcomes []queue.Outcome,
) {
	waiting := 0
	for i := range items {
		it := items[i]
		o := queue.Outcome{Task: it.task, Attempt: it.task.Attempt, Losses: it.task.Losses}
		switch barred := w.barred(&it, locked); {
		case it.action == broken:
			o = w.failure(&it)
		case barred == byLock:
			// Another session is changing the row, or it was removed since we read it. A later try sees the result.
			waiting++
			w.stats.Locked.Add(1)
			o.Action, o.What, o.Class, o.Code = queue.Later, "locked", string(embed.Transient), "locked"
			o.Delay = lockedDelay(it.task, time.Now())
		case barred == byChange, it.action != nothing && !passed[it.task.RowKey]:
			// The row's ledger entry changed since it was read, perhaps for a newer text, or its text is newer now.
			w.stats.Fenced.Add(1)
			o.Action, o.What = queue.Again, "overtaken"
		default:
			mine = append(mine, it)
			o.Action, o.What, o.Attempt, o.Losses = queue.Done, it.word(), it.task.Attempt+1, 0
		}
		outcomes = append(outcomes, o)
	}
	if 2*waiting > len(items) { //nolint:mnd // a busy table always has a few locked rows
		w.met.note()
	}
	return mine, outcomes
}

// bar is what keeps an item from writing to a user's row.
type bar int

const (
	byNothing bar = iota
	byLock        // another session has locked the row, or it was removed
	byChange      // its text changed since it was read
)

// barred returns what keeps an item from writing to its row. A vector of an older text is not written: the change has
// queued the row again. A row that changes faster than it can be embedded is still written from time to time.
func (w *Worker) barred(it *item, locked *rows.Locks) bar {
	switch {
	case !it.touches() || locked == nil:
		return byNothing
	case !locked.Hold(it.task.RowKey):
		return byLock
	case !bytes.Equal(locked.Sources[it.task.RowKey], it.row.Source) && time.Since(it.task.EnqueuedAt) < w.o.Lease:
		return byChange
	}
	return byNothing
}

func (w *Worker) begin(ctx context.Context, items []item) (openWriteBack, error) {
	var touched []string
	for i := range items {
		if it := &items[i]; it.touches() {
			touched = append(touched, it.task.RowKey)
		}
	}
	return w.store.begin(ctx, items[0].task.Lease, len(items), touched, func(locked *rows.Locks) []rows.Entry {
		return w.entries(items, locked)
	})
}

// entries returns the new ledger entries of the items that are written.
func (w *Worker) entries(items []item, locked *rows.Locks) (entries []rows.Entry) {
	for i := range items {
		it := &items[i]
		if it.action == nothing || it.action == broken || w.barred(it, locked) != byNothing {
			continue
		}
		e := rows.Entry{Key: it.task.RowKey, LSN: it.task.LastLSN.String(), Gone: it.action == gone || it.action == alias}
		if it.row.Ledger {
			e.Version = &it.row.LedgerVersion
		}
		switch it.action {
		case vectorIn:
			write := it.write()
			hash := w.table.VectorHash(&write)
			e.Source, e.Text, e.Norm, e.Vector = it.row.Source, it.row.TextHash[:], it.row.NormOf(it.row.TextHash[:]), hash[:]
		case relabel: // the text may be another one with the same normalised form
			e.Source, e.Text, e.Vector = it.row.Source, it.row.LedgerText, it.row.LedgerVector
			e.Norm, e.Ignored = it.row.NormOf(it.row.LedgerText), it.row.Ignored()
		case skip:
			e.Source, e.Text, e.Norm, e.Vector = it.row.Source, it.row.LedgerText, it.row.LedgerNorm, it.row.LedgerVector
			e.Skipped = it.row.TextHash[:]
			if !it.row.Ledger {
				e.Vector = rows.NoVector[:]
			}
		case empty:
			e.Source, e.Vector = it.row.Source, rows.NoVector[:]
			if it.row.Wanted() || it.row.Keep && it.row.Bytes > 0 { // without tokens; the server knows fewer kinds of spaces
				e.Norm = it.row.TextHash[:]
			}
		case gone, alias, nothing, broken:
		}
		entries = append(entries, e)
	}
	return entries
}

// written returns how many vectors are written for an item; with chunks, those that do not stay in place.
func (it *item) written() (n int64) {
	if it.chunks == nil {
		return 1
	}
	for i := range it.chunks {
		if !it.chunks[i].Stays {
			n++
		}
	}
	return n
}

// count adds a finished batch to the counters.
func (w *Worker) count(mine []item, done queue.Finished) {
	w.stats.Failed.Add(int64(done.Failed))
	now := time.Now()
	for i := range mine {
		switch mine[i].action {
		case vectorIn:
			w.stats.Written.Add(mine[i].written())
			if mine[i].paid {
				w.stats.Embedded.Add(1)
			} else {
				w.stats.Reused.Add(1)
			}
			waited := now.Sub(mine[i].task.CommittedAt)
			w.stats.Fresh.Note(waited)
			if w.o.Fresh != nil {
				w.o.Fresh(waited)
			}
		case nothing, relabel:
			w.stats.Unchanged.Add(1)
		case skip:
			w.stats.Skipped.Add(1)
		case empty:
			w.stats.Emptied.Add(1)
		case gone, alias:
			w.stats.Removed.Add(1)
		case broken:
		}
	}
}
