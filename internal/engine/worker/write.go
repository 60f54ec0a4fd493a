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

// mostLocked is how often a batch may wait for locks in vain until those of its rows that stand in the way are alone.
// Each takes a lock_timeout.
const mostLocked = 12

// finish writes a batch back, in portions. One that the database refuses is halved until the row at fault is alone.
func (w *Worker) finish(ctx context.Context, items []item) error {
	locked := 0
	return w.finishParts(ctx, items, &locked)
}

func (w *Worker) finishParts(ctx context.Context, items []item, locked *int) error {
	for len(items) > 0 {
		n := w.portion(items)
		err := w.writeBack(ctx, items[:n])
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
			// Somebody alters the table or builds an index on it, or what a trigger waits for is held: smaller batches would
			// wait just as long.
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

// heldRows is how many rows of the user's a write-back to a column holds until it commits: who writes one meanwhile
// waits, and who asks for it with NOWAIT fails, and nobody sees him wait. With a quarter of the rows he meets half as
// many. It is not smaller still, and does not go by the time it takes: each write-back costs four round trips, which a
// busy machine would have more of just then.
const heldRows = 64

// portion returns how many of some items the next write-back takes: all of them for an embedding table, whose rows
// nobody else writes.
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

// changeOf says what the items of one write-back do to the destination.
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
			if !it.nobody { // the destination's key is of the same type: there is nothing to remove
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

// write is what is written for an item with a vector.
func (it *item) write() rows.Write {
	return rows.Write{
		Key: it.task.RowKey, TextHash: it.row.TextHash[:], Vector: it.vector, Text: it.row.Text, Chunks: it.chunks,
	}
}

// writeBack does one transaction: hold the lease, lock the rows of a column except those that others lock, pass the
// fence, write vectors; then finish the tasks, on the way with the commit. Until then it holds nothing that the
// stream could wait for, however long a trigger of the user's takes and whenever this process is stopped.
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
		return w.overdue(len(items)) // somebody else has these tasks: nothing of this may be written
	}
	if err := reached(items[0].task, "after-fence"); err != nil {
		return err
	}
	mine, outcomes := w.judge(items, b.locked, b.passed)
	c := changeOf(mine, w.o.Pipeline.Generation)
	moved := w.restless.watch(&c)
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
		if done == (queue.Finished{}) { // the pipeline changed behind the fence
			return w.overdue(len(items))
		}
		w.tasks.Note(w.o.Pipeline.ID, outcomes, done)
	}
	w.restless.note(c.Write, *moved)
	w.noteEnd(ctx, items, mine, outcomes, done)
	return nil
}

// finishOnly ends a batch of which nothing is to be written.
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

// noteEnd notes how items have ended; mine are those that were written.
func (w *Worker) noteEnd(ctx context.Context, items, mine []item, outcomes []queue.Outcome, done queue.Finished) {
	w.noteOutcomes(ctx, outcomes, done)
	w.count(mine, done)
	w.noteFate(ctx, items)
}

// overdue says that a lease was over before some of its rows were done, which ends the batch: queue.ErrLeaseLost.
func (w *Worker) overdue(n int) error {
	w.stats.Fenced.Add(int64(n))
	return queue.ErrLeaseLost
}

// judge says how each item ends, and which of them are written: not those whose rows are locked, nor those that did
// not pass the fence.
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
			// Somebody is changing the row, or it is gone since we read it. Whatever it is will be true in a moment.
			waiting++
			w.stats.Locked.Add(1)
			o.Action, o.What, o.Class, o.Code = queue.Later, "locked", string(embed.Transient), "locked"
			o.Delay = lockedDelay(it.task, time.Now())
		case barred == byChange, it.action != nothing && !passed[it.task.RowKey]:
			// Somebody has written of the row since it was read, perhaps of a newer text; or its text is a newer one now.
			w.stats.Fenced.Add(1)
			o.Action, o.What = queue.Again, "overtaken"
		default:
			mine = append(mine, it)
			o.Action, o.What, o.Attempt, o.Losses = queue.Done, it.word(), it.task.Attempt+1, 0
		}
		outcomes = append(outcomes, o)
	}
	if 2*waiting > len(items) { //nolint:mnd // a few rows are always locked on a busy table
		w.met.note()
	}
	return mine, outcomes
}

// What keeps an item from writing to a row of users'.
type bar int

const (
	byNothing bar = iota
	byLock        // somebody has locked the row, or it is gone
	byChange      // its text is another one than was read
)

// barred says what keeps an item from writing to its row. A vector of an older text is not written: the one who changed
// the row has it looked at again. A row that changes faster than it is embedded gets one all the same, now and then.
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

func (w *Worker) begin(ctx context.Context, items []item) (writeBack, error) {
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

// entries are what the ledger is to say of items, but of those that are not written.
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
		case relabel: // the text counts as the one that the vector is of, if it is not that one
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
		case gone, alias, nothing, broken:
		}
		entries = append(entries, e)
	}
	return entries
}

// written is how many vectors are written for an item with a vector: with chunks, those that do not stay where they are.
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
