package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/database"
	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/failpoint"
	"github.com/embedsidecar/embedsidecar/mark"
	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// lockedDelay is when a row that somebody else is changing is due again: soon, and less often the longer it takes.
func lockedDelay(t queue.Task, now time.Time) time.Duration {
	return min(max(now.Sub(t.EnqueuedAt)/10, 50*time.Millisecond), 5*time.Second)
}

// touches tells whether the item changes the destination's row.
func (it *item) touches() bool {
	return it.action == vectorIn || it.action == empty && it.row.stored
}

// finish writes a batch back. A batch that the database refuses is halved until the row at fault is alone.
func (w *Worker) finish(ctx context.Context, items []item) error {
	err := w.writeBack(ctx, items)
	if err == nil {
		return nil
	}
	tasks := make([]queue.Task, len(items))
	for i := range items {
		tasks[i] = items[i].task
	}
	switch {
	case lockedOut(err):
		// Somebody alters the table or builds an index on it. Smaller batches would wait just as long.
		return w.postpone(ctx, tasks, embed.Transient, "locked", "the table is locked by somebody", lockedDelay(tasks[0], time.Now()))
	case parkable(err) && w.unfit(ctx):
		return w.park(ctx, tasks, err)
	case !database.RowsFault(err) && !contended(err):
		return err
	}
	if len(items) == 1 {
		it := &items[0]
		class, code := embed.Data, "write_refused"
		if contended(err) {
			class, code = embed.Transient, "contended"
		}
		it.action, it.err = broken, &embed.TextError{Class: class, Code: code, Message: w.refusal(it, err)}
		return w.writeBack(ctx, items)
	}
	half := len(items) / 2
	if err := w.finish(ctx, items[:half]); err != nil {
		return err
	}
	return w.finish(ctx, items[half:])
}

// change is what the items of one write-back do to the destination, the ledger and the queue.
type change struct {
	write, empty, remove []*item // destination
	ledger               []*item
	forget               []string // keys that leave the ledger
}

func sortItems(items []item) change {
	var c change
	for i := range items {
		it := &items[i]
		switch it.action {
		case vectorIn:
			c.write = append(c.write, it)
			c.ledger = append(c.ledger, it)
		case relabel:
			c.ledger = append(c.ledger, it)
		case empty:
			if it.touches() {
				c.empty = append(c.empty, it)
			}
			c.ledger = append(c.ledger, it)
		case gone:
			if !it.nobody { // the destination's key is of the same type: there is nothing to remove
				c.remove = append(c.remove, it)
			}
			c.forget = append(c.forget, it.task.RowKey)
		case alias:
			c.forget = append(c.forget, it.task.RowKey)
		case nothing, broken:
		}
	}
	return c
}

// writeBack does one transaction: lock my tasks, lock their rows but those that are locked, write vectors, ledger and history,
// finish or re-open the tasks.
func (w *Worker) writeBack(ctx context.Context, items []item) error {
	p := w.o.Pipeline
	tx, held, locked, err := w.lock(ctx, items)
	if tx != nil {
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	}
	if err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	var (
		mine     []item
		outcomes []queue.Outcome
	)
	for i := range items {
		it := items[i]
		switch {
		case !held[it.task.TaskID]:
			w.stats.Fenced.Add(1)
		case it.action == broken:
			outcomes = append(outcomes, w.failure(&it))
		case locked != nil && it.touches() && locked.sources[it.task.TaskID] == nil:
			// Somebody is changing the row, or it is gone since we read it. Whatever it is will be true in a moment.
			w.stats.Locked.Add(1)
			outcomes = append(outcomes, queue.Outcome{
				Task: it.task, Action: queue.Later, What: "locked", Attempt: it.task.Attempt,
				Losses: it.task.Losses, Class: string(embed.Transient), Code: "locked", Delay: lockedDelay(it.task, time.Now()),
			})
		default:
			mine = append(mine, it)
			outcomes = append(outcomes, queue.Outcome{Task: it.task, Action: queue.Done, What: it.word(), Attempt: it.task.Attempt + 1})
		}
	}
	if len(outcomes) == 0 {
		return nil // every lease was lost: nothing of this may be written
	}
	c := sortItems(mine)
	if p.Chunked && len(c.write) > 0 {
		if err := w.writeChunks(ctx, tx, c.write); err != nil {
			return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
		}
	}
	batch := &pgx.Batch{}
	w.queueMark(batch, mine, locked)
	if err := w.queueDestination(batch, c); err != nil {
		return err
	}
	moved, err := w.queueAfter(batch, c.write, locked)
	if err != nil {
		return err
	}
	w.queueLedger(batch, c)
	var done queue.Finished
	batch.Queue(sqlfiles.Query("finish_tasks"), queue.FinishArgs(w.o.ID, items[0].task.LeaseToken, outcomes)).
		Query(func(rows pgx.Rows) (err error) { done, err = queue.CollectFinished(rows); return err })
	if p.ToColumn() && len(c.write)+len(c.empty) > 0 {
		w.queuePath(batch, w.o.UserPath) // for triggers that are deferred to the commit
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if err := failpoint.Hit("worker/before-commit"); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("write back %s: %w", w.describe(len(items)), err)
	}
	if err := failpoint.Hit("worker/after-commit"); err != nil {
		return err
	}
	w.o.Queue.NoteDue(outcomes)
	w.restless.note(c.write, moved)
	w.count(mine, done)
	return nil
}

// rowLocks are rows of a column destination that nobody else can change until the transaction ends.
type rowLocks struct {
	xid     uint32                        // of the transaction, as pgoutput tells it
	sources map[int64]pipeline.SourceHash // that each row has now, by task
}

// lock begins the transaction, which the caller ends: my tasks first, then the rows of a column destination. It returns which tasks are still mine and,
// for a column, the rows (nil for an embedding table, whose rows nobody else writes). Those that are locked by others are left out.
func (w *Worker) lock(ctx context.Context, items []item) (tx pgx.Tx, held map[int64]bool, locked *rowLocks, err error) {
	p := w.o.Pipeline
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{}) // one round trip for all of it
	ids := make([]int64, len(items))
	var (
		keys []string
		rows []int64
	)
	for i := range items {
		it := &items[i]
		ids[i] = it.task.TaskID
		if it.touches() {
			keys, rows = append(keys, it.task.RowKey), append(rows, it.task.TaskID)
		}
	}
	batch.Queue(sqlfiles.Query("lock_tasks"), queue.LockArgs(items[0].task.LeaseToken, p.Generation, ids)).
		Query(func(r pgx.Rows) (err error) { held, err = queue.CollectLocked(r); return err })
	if p.ToColumn() {
		locked = &rowLocks{sources: map[int64]pipeline.SourceHash{}}
		batch.Queue("SELECT pg_current_xact_id()::xid").QueryRow(func(r pgx.Row) error { return r.Scan(&locked.xid) })
		if len(keys) > 0 {
			args, err := keyArrays(p, keys)
			if err != nil {
				return nil, nil, nil, err
			}
			var (
				place int64
				hash  []byte
			)
			batch.Queue(w.sql.lock, args...).Query(func(r pgx.Rows) error {
				_, err := pgx.ForEachRow(r, []any{&place, &hash}, func() error {
					locked.sources[rows[place-1]] = append(pipeline.SourceHash{}, hash...)
					return nil
				})
				return err
			})
		}
	}
	results := w.o.DB.SendBatch(ctx, batch)
	return results.Tx(), held, locked, results.Close()
}

// queueMark adds the mark by which the streamer knows the rows of a column write-back again: as they will be, which is not always
// as they were read. Somebody may have changed a row between; that change makes a task itself, and our vector must not make another. So the
// vector may be of an older text than the one it is signed with: the mark holds for this transaction alone.
func (w *Worker) queueMark(batch *pgx.Batch, items []item, locked *rowLocks) {
	if locked == nil || w.o.NoMarks {
		return
	}
	maker := mark.NewMaker(w.o.MarkKey, locked.xid)
	var tags []mark.Tag
	for i := range items {
		it := &items[i]
		if !it.touches() {
			continue
		}
		hash := noVector
		if it.action == vectorIn {
			hash = w.o.Pipeline.Stored.Hash(it.vector)
		}
		tags = append(tags, maker.Tag(w.o.Pipeline.ID, it.task.RowKey, locked.sources[it.task.TaskID], hash[:]))
	}
	if len(tags) > 0 {
		batch.Queue("SELECT pg_logical_emit_message(true, $1::text, $2::bytea)", mark.WriteBack, mark.Encode(tags))
	}
}

func keysOf(items []*item) []string {
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.task.RowKey
	}
	return keys
}

// queueDestination adds the statements that write the destination.
func (w *Worker) queueDestination(batch *pgx.Batch, c change) error {
	p := w.o.Pipeline
	if len(c.write) > 0 && !p.Chunked {
		args, err := keyArrays(p, keysOf(c.write))
		if err != nil {
			return err
		}
		given := make([][]float32, len(c.write))
		hashes := make([][]byte, len(c.write))
		for i, it := range c.write {
			given[i], hashes[i] = it.vector, it.row.textHash[:]
		}
		vectors := parameter(p, given)
		if p.ToColumn() {
			w.queueUpdate(batch, w.sql.write, append(args, vectors), len(c.write))
		} else {
			batch.Queue(w.sql.write, append(args, hashes, vectors)...)
		}
	}
	if len(c.empty) > 0 {
		args, err := keyArrays(p, keysOf(c.empty))
		if err != nil {
			return err
		}
		if p.ToColumn() {
			w.queueUpdate(batch, w.sql.empty, args, len(c.empty))
		} else {
			batch.Queue(w.sql.empty, args...)
		}
	}
	if len(c.remove) > 0 && w.sql.remove != "" {
		args, err := keyArrays(p, keysOf(c.remove))
		if err != nil {
			return err
		}
		batch.Queue(w.sql.remove, append(args, keysOf(c.remove))...)
	}
	return nil
}

// queueUpdate adds an update of the user's rows and checks that none was kept out.
func (w *Worker) queueUpdate(batch *pgx.Batch, sql string, args []any, want int) {
	// Triggers of the table were written for the search_path of its applications and run under it; the statement itself names
	// everything in full.
	w.queuePath(batch, w.o.UserPath)
	defer w.queuePath(batch, ownPath)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n != want {
			return errSuppressed
		}
		return nil
	})
}

// ownPath is the search_path of our sessions.
const ownPath = "pg_catalog"

func (*Worker) queuePath(batch *pgx.Batch, path string) {
	batch.Queue("SELECT pg_catalog.set_config('search_path', $1, true)", path)
}

// queueLedger adds the statements that keep the ledger.
func (w *Worker) queueLedger(batch *pgx.Batch, c change) {
	p := w.o.Pipeline
	if n := len(c.ledger); n > 0 {
		var (
			sources = make([][]byte, n)
			texts   = make([][]byte, n)
			vectors = make([][]byte, n)
			lsns    = make([]string, n)
		)
		for i, it := range c.ledger {
			sources[i], lsns[i] = it.row.source, it.task.LastLSN.String()
			switch it.action {
			case vectorIn:
				hash := p.Stored.Hash(it.vector)
				if p.Chunked {
					hash = it.piecesHash()
				}
				texts[i], vectors[i] = it.row.textHash[:], hash[:]
			case relabel:
				texts[i], vectors[i] = it.row.ledgerText, it.row.ledgerVector
			default:
				vectors[i] = noVector[:]
			}
		}
		batch.Queue(sqlfiles.Query("upsert_ledger"), pgx.StrictNamedArgs{
			"pipeline_id": p.ID, "generation": p.Generation, "row_keys": keysOf(c.ledger), "source_hashes": sources,
			"text_hashes": texts, "vector_hashes": vectors, "lsns": lsns,
		})
	}
	if len(c.forget) > 0 {
		batch.Queue(sqlfiles.Query("delete_ledger"), pgx.StrictNamedArgs{"pipeline_id": p.ID, "row_keys": c.forget})
	}
}

// count adds a finished batch to the counters.
func (w *Worker) count(mine []item, done queue.Finished) {
	w.stats.Failed.Add(int64(done.Failed))
	now := time.Now()
	for i := range mine {
		switch mine[i].action {
		case vectorIn:
			if w.o.Pipeline.Chunked {
				w.stats.Written.Add(int64(mine[i].written))
			} else {
				w.stats.Written.Add(1)
			}
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
