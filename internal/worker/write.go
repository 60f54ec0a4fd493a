package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/rows"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// lockedDelay is when a row that somebody else is changing is due again: soon, and less often the longer it takes.
func lockedDelay(t queue.Task, now time.Time) time.Duration {
	return min(max(now.Sub(t.EnqueuedAt)/10, 50*time.Millisecond), 5*time.Second)
}

// touches reports whether the item changes the destination's row.
func (it *item) touches() bool {
	return it.action == vectorIn || it.action == empty && it.row.Stored
}

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
		all := w.ofAll(ctx, err, w.writeNone)
		if rows.Fault(err) == database.Locked {
			*locked++
		}
		switch {
		case rows.Fault(all) == database.Locked || *locked > mostLocked:
			// Somebody alters the table or builds an index on it, or what a trigger waits for is held: smaller batches would
			// wait just as long.
			delay := lockedDelay(items[0].task, time.Now())
			return w.postpone(ctx, tasksOf(items), embed.Transient, "locked",
				"the table, or what a trigger of it waits for, is locked by somebody", delay)
		case unfits(all):
			return w.park(ctx, tasksOf(items), all)
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
		case alias, nothing, broken:
		}
	}
	return c
}

// write is what is written for an item with a vector.
func (it *item) write() rows.Write {
	return rows.Write{
		Key: it.task.RowKey, TextHash: it.row.TextHash[:], Vector: it.vector, Text: it.row.Text, Pieces: it.pieces,
	}
}

// writeBack does one transaction: hold the lease, lock the rows of a column but those that are locked, pass the
// fence, write vectors; then finish the tasks, on the way with the commit. Until then it holds nothing that the
// stream could wait for, however long a trigger of the user's takes and whenever this process is stopped.
func (w *Worker) writeBack(ctx context.Context, items []item) error {
	if !slices.ContainsFunc(items, func(it item) bool { return it.action != nothing && it.action != broken }) {
		return w.finishOnly(ctx, items)
	}
	tx, held, locked, passed, err := w.begin(ctx, items)
	if tx != nil {
		// it is over, or to be undone: this gives the connection back
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	}
	if err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if !held {
		return w.overdue(len(items)) // somebody else has these tasks: nothing of this may be written
	}
	if passed == nil {
		batch := &pgx.Batch{}
		passed = w.queueFence(batch, items, locked)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
		}
	}
	if err := failpoint.Hit("worker/after-fence"); err != nil {
		return err
	}
	mine, outcomes := w.judge(items, locked, passed)
	c := changeOf(mine, w.o.Pipeline.Generation)
	moved := w.restless.watch(&c)
	if err := w.table.Write(ctx, tx, &c, locked); err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if err := failpoint.Hit("worker/before-commit"); err != nil {
		return err
	}
	var done queue.Finished
	batch := &pgx.Batch{}
	batch.Queue(sqlfiles.Query("finish_tasks"), queue.FinishArgs(w.o.ID, items[0].task.Lease, w.o.Pipeline.Generation,
		outcomes)).
		Query(func(r pgx.Rows) (err error) { done, err = queue.CollectFinished(r); return err })
	batch.Queue("COMMIT AND CHAIN") // the transaction that begins is what the driver still has to end
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if err := failpoint.Hit("worker/after-commit"); err != nil {
		return err
	}
	w.o.Queue.NoteDue(outcomes)
	w.restless.note(c.Write, *moved)
	w.count(mine, done)
	w.noteFate(ctx, items)
	return nil
}

// finishOnly ends a batch of which nothing is to be written.
func (w *Worker) finishOnly(ctx context.Context, items []item) error {
	mine, outcomes := w.judge(items, nil, nil)
	done, err := w.o.Queue.Finish(ctx, w.o.ID, items[0].task.Lease, w.o.Pipeline.Generation, outcomes)
	if err != nil {
		return err
	}
	if done == (queue.Finished{}) {
		return w.overdue(len(items))
	}
	w.count(mine, done)
	w.noteFate(ctx, items)
	return nil
}

// overdue says that a lease was over before some of its rows were done, which ends the batch: queue.ErrLeaseLost.
func (w *Worker) overdue(n int) error {
	w.stats.Fenced.Add(int64(n))
	return queue.ErrLeaseLost
}

// judge says how each item ends, and which of them are written: not those whose rows are locked, nor those that did
// not pass the fence.
func (w *Worker) judge(items []item, locked *rows.Locks, passed map[string]bool) (mine []item, outcomes []queue.Outcome) {
	for i := range items {
		it := items[i]
		switch {
		case it.action == broken:
			outcomes = append(outcomes, w.failure(&it))
		case it.barred(locked):
			// Somebody is changing the row, or it is gone since we read it. Whatever it is will be true in a moment.
			w.stats.Locked.Add(1)
			outcomes = append(outcomes, queue.Outcome{
				Task: it.task, Action: queue.Later, What: "locked", Attempt: it.task.Attempt,
				Losses: it.task.Losses, Class: string(embed.Transient), Code: "locked", Delay: lockedDelay(it.task, time.Now()),
			})
		case it.action != nothing && !passed[it.task.RowKey]:
			// Somebody has written of the row since it was read. Perhaps it was of a newer text.
			w.stats.Fenced.Add(1)
			outcomes = append(outcomes, queue.Outcome{
				Task: it.task, Action: queue.Again, What: "overtaken",
				Attempt: it.task.Attempt, Losses: it.task.Losses,
			})
		default:
			mine = append(mine, it)
			outcomes = append(outcomes, queue.Outcome{
				Task: it.task, Action: queue.Done, What: it.word(),
				Attempt: it.task.Attempt + 1,
			})
		}
	}
	return mine, outcomes
}

// barred reports whether the item writes to a row that somebody has locked.
func (it *item) barred(locked *rows.Locks) bool { return it.touches() && !locked.Hold(it.task.RowKey) }

// begin begins the transaction, which the caller ends. It reports whether the lease is still ours, and which rows of
// users' are now locked. Those that are locked by others are left out. Where there are none to be locked the fence is
// passed on the way, and the keys that passed are returned.
func (w *Worker) begin(ctx context.Context, items []item) (tx pgx.Tx, held bool, locked *rows.Locks,
	passed map[string]bool, err error,
) {
	batch := &pgx.Batch{}
	batch.BeginTx(database.Isolation) // one round trip for all of it
	database.Conduct(w.o.DB, batch)
	w.table.QueueGuard(batch)
	batch.Queue(sqlfiles.Query("hold_lease"), queue.HoldArgs(items[0].task.Lease,
		w.o.Pipeline.Generation)).Query(func(r pgx.Rows) error {
		held = r.Next()
		return nil
	})
	var keys []string
	for i := range items {
		if it := &items[i]; it.touches() {
			keys = append(keys, it.task.RowKey)
		}
	}
	if locked, err = w.table.QueueLock(batch, keys); err != nil {
		return nil, false, nil, nil, err
	}
	if locked == nil {
		passed = w.queueFence(batch, items, nil)
	}
	results := w.o.DB.SendBatch(ctx, batch)
	if tx = results.Tx(); tx != nil {
		w.table.Began(tx)
	}
	return tx, held, locked, passed, results.Close()
}

// queueFence adds the statement that writes the ledger, of those items whose entry is still the one that was read
// with the row. It returns where their keys are put. Rows that somebody has locked are left out: they are not
// written.
func (w *Worker) queueFence(batch *pgx.Batch, items []item, locked *rows.Locks) (passed map[string]bool) {
	p := w.o.Pipeline
	var (
		keys, lsns              []string
		versions                []*string
		gones                   []bool
		sources, texts, vectors [][]byte
	)
	for i := range items {
		it := &items[i]
		if it.action == nothing || it.action == broken || it.barred(locked) {
			continue
		}
		var version *string
		if it.row.Ledger {
			version = &it.row.LedgerVersion
		}
		var source, text, vector []byte
		switch it.action {
		case vectorIn:
			write := it.write()
			hash := w.table.VectorHash(&write)
			source, text, vector = it.row.Source, it.row.TextHash[:], hash[:]
		case relabel:
			source, text, vector = it.row.Source, it.row.LedgerText, it.row.LedgerVector
		case empty:
			source, vector = it.row.Source, rows.NoVector[:]
		case gone, alias, nothing, broken:
		}
		keys, lsns = append(keys, it.task.RowKey), append(lsns, it.task.LastLSN.String())
		versions, gones = append(versions, version), append(gones, it.action == gone || it.action == alias)
		sources, texts, vectors = append(sources, source), append(texts, text), append(vectors, vector)
	}
	passed = make(map[string]bool, len(keys))
	if len(keys) == 0 {
		return passed
	}
	batch.Queue(sqlfiles.Query("write_ledger"), pgx.StrictNamedArgs{
		"pipeline_id": p.ID, "generation": p.Generation, "place": items[0].task.Lease.Place, "row_keys": keys,
		"versions": versions, "gone": gones,
		"source_hashes": sources, "text_hashes": texts, "vector_hashes": vectors, "lsns": lsns,
	}).Query(func(r pgx.Rows) error {
		var key string
		_, err := pgx.ForEachRow(r, []any{&key}, func() error { passed[key] = true; return nil })
		return err
	})
	return passed
}

// vectors is how many are written for an item with a vector: with chunks, those that do not stay where they are.
func (it *item) vectors() (n int64) {
	if it.pieces == nil {
		return 1
	}
	for i := range it.pieces {
		if !it.pieces[i].Stays {
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
			w.stats.Written.Add(mine[i].vectors())
			w.stats.Embedded.Add(1)
			if w.o.Fresh != nil {
				w.o.Fresh(now.Sub(mine[i].task.CommittedAt))
			}
		case nothing, relabel:
			w.stats.Unchanged.Add(1)
		case empty:
			w.stats.Emptied.Add(1)
		case gone, alias:
			w.stats.Removed.Add(1)
		case broken:
		}
	}
}
