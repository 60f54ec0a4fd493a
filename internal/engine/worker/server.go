package worker

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// server is the store of a pipeline in its database.
type server struct {
	p     *pipeline.Pipeline
	db    database.DB
	table *rows.Table
	id    int64 // worker_id of this sidecar
	jobs  Jobs
}

// started is a started write-back.
type started struct {
	s     *server
	tx    pgx.Tx
	lease queue.Lease
	locks *rows.Locks
	items int

	release func() // gives the connection back
}

// begin takes no lock that the stream may wait for. Without users' rows to lock it passes the fence in the same round
// trip.
func (s *server) begin(ctx context.Context, l queue.Lease, items int, touched []string,
	fence func(locked *rows.Locks) []rows.Entry,
) (b openWriteBack, err error) {
	sender, release, err := database.Acquired(ctx, s.over(l)) // waiting for it does not count
	if err != nil {
		return b, err
	}
	err = limited(ctx, l.Direct, func(ctx context.Context) (err error) {
		b, err = s.beginOn(ctx, sender, release, l, items, touched, fence)
		return err
	})
	if b.transaction == nil {
		release()
	}
	return b, err
}

// beginOn is begin on a connection.
func (s *server) beginOn(ctx context.Context, sender database.DB, release func(), l queue.Lease, items int,
	touched []string, fence func(locked *rows.Locks) []rows.Entry,
) (b openWriteBack, err error) {
	db := s.over(l)
	batch := &pgx.Batch{}
	batch.BeginTx(database.Isolation) // everything in one round trip
	database.Conduct(db, batch)
	if s.p.Routed() {
		items = math.MaxInt // a generic plan would scan all partitions
	}
	if db == s.db {
		database.PlanOnce(db, batch, items)
	} else {
		items = 1 // a Line plans the same way for any number
	}
	if err = s.table.QueueGuard(batch, touched); err != nil {
		return b, err
	}
	queue.QueueHold(batch, l, s.p.Generation, &b.held)
	if b.locked, err = s.table.QueueLock(batch, touched); err != nil {
		return b, err
	}
	if b.locked == nil {
		b.passed = s.queueFence(batch, l, fence(nil), items)
	}
	results := sender.SendBatch(ctx, batch)
	if tx := results.Tx(); tx != nil {
		b.transaction = &started{s, tx, l, b.locked, items, release}
		s.table.Began(tx)
	}
	if err := results.Close(); err != nil || !b.held || b.passed != nil {
		return b, err // failed, lost the lease, or passed the fence already (embedding table)
	}
	batch = &pgx.Batch{}
	b.passed = s.queueFence(batch, l, fence(b.locked), items)
	return b, results.Tx().SendBatch(ctx, batch).Close()
}

// over returns the connection for a write-back: direct changes use their Line, unless users' triggers could leave state
// in that session.
func (s *server) over(l queue.Lease) database.DB {
	if l.Direct == nil || l.Direct.Line == nil || s.p.Triggers {
		return s.db
	}
	return l.Direct.Line
}

// queueFence adds the statement that writes the ledger where it is unchanged since it was read. It is the last
// statement before users' code may run. It returns the set that will contain the written keys.
func (s *server) queueFence(batch *pgx.Batch, l queue.Lease, entries []rows.Entry, items int) (passed map[string]bool) {
	passed = make(map[string]bool, len(entries))
	defer database.PlanAnew(s.over(l), batch, items)
	if len(entries) == 0 {
		return passed
	}
	var (
		slot  *string
		epoch *int64
	)
	if l.Direct != nil {
		slot, epoch = &l.Direct.Slot, &l.Direct.Epoch
	}
	args := pgx.StrictNamedArgs{
		"pipeline_id": s.p.ID, "generation": s.p.Generation, "place": l.Place, "slot": slot, "epoch": epoch,
	}
	maps.Copy(args, rows.Columns(entries))
	batch.Queue(sqlfiles.Query("write_ledger"), args).Query(func(r pgx.Rows) error {
		var key string
		_, err := pgx.ForEachRow(r, []any{&key}, func() error { passed[key] = true; return nil })
		return err
	})
	return passed
}

func (b *started) write(ctx context.Context, c *rows.Change) error {
	return limited(ctx, b.lease.Direct, func(ctx context.Context) error {
		return b.s.table.Write(ctx, b.tx, c, b.locks)
	})
}

func (b *started) commit(ctx context.Context, outcomes []queue.Outcome) (done queue.Finished, err error) {
	err = limited(ctx, b.lease.Direct, func(ctx context.Context) (err error) {
		done, err = b.commitNow(ctx, outcomes)
		return err
	})
	return done, err
}

func (b *started) commitNow(ctx context.Context, outcomes []queue.Outcome) (done queue.Finished, err error) {
	if d := b.lease.Direct; d != nil {
		if err := b.tellGone(ctx, outcomes); err != nil {
			return queue.Finished{}, err
		}
		if err := b.tx.Commit(ctx); err != nil {
			return queue.Finished{}, err
		}
		return d.End(outcomes), nil
	}
	batch := &pgx.Batch{}
	database.PlanOnce(b.s.db, batch, b.items)
	queue.QueueFinish(batch, b.s.id, b.lease, b.s.p.Generation, outcomes, &done)
	database.PlanAnew(b.s.db, batch, b.items) // users' triggers may run at commit
	batch.Queue("COMMIT AND CHAIN")           // begins a transaction: the driver expects one, and end rolls it back
	return done, b.tx.SendBatch(ctx, batch).Close()
}

// tellGone records rows without a task in history if they lost their vector.
func (b *started) tellGone(ctx context.Context, outcomes []queue.Outcome) error {
	lost := slices.DeleteFunc(slices.Clone(outcomes), func(o queue.Outcome) bool {
		return o.Action != queue.Done || o.What != words[empty] && o.What != words[gone]
	})
	if len(lost) == 0 {
		return nil
	}
	_, err := b.tx.Exec(ctx, sqlfiles.Query("tell_history"), queue.TellArgs(b.s.id, b.lease, b.s.p.Generation, lost))
	return err
}

func (b *started) end(ctx context.Context) {
	_ = b.tx.Rollback(context.WithoutCancel(ctx))
	b.release()
}

func (s *server) screen(ctx context.Context, d *queue.Direct, changes []queue.Change, texts int) (rows.Screened,
	error,
) {
	n := len(changes)
	keys, xids, unchanged := make([]string, n), make([]int64, n), make([][]byte, n)
	for i := range changes {
		keys[i], xids[i], unchanged[i] = changes[i].RowKey, int64(changes[i].XID), changes[i].Unchanged
	}
	// The stream waits for the users' code that is run to read the rows.
	var found rows.Screened
	if d.Line != nil {
		err := limited(ctx, d, func(ctx context.Context) (err error) {
			found, err = s.table.Screen(ctx, d.Line, keys, xids, unchanged, texts)
			d.Checkpoint = found.Checkpoint
			return err
		})
		return found, err
	}
	err := s.table.Briefly(ctx, d.Timeout, func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT embedsidecar.server_life()").Scan(&d.Life); err != nil {
			return fmt.Errorf("read when the server started: %w", err)
		}
		var err error
		found, err = s.table.Screen(ctx, tx, keys, xids, unchanged, texts)
		return err
	})
	return found, err
}

func (s *server) writeAtOnce(ctx context.Context, d *queue.Direct, writes []rows.Write, entries []rows.Entry,
) (held bool, passed map[string]bool, err error) {
	err = limited(ctx, d, func(ctx context.Context) (err error) {
		right := rows.Right{Slot: d.Slot, Epoch: d.Epoch, Checkpoint: d.Checkpoint}
		held, passed, err = s.table.WriteAtOnce(ctx, d.Line, right, writes, entries)
		return err
	})
	return held, passed, err
}

func (s *server) addTasks(ctx context.Context, keys []string) error {
	return queue.Add(ctx, s.db, s.p.ID, s.p.Priority, keys)
}

func (s *server) known(ctx context.Context, hashes [][]byte) ([]knownVector, error) {
	return s.knownVectors(ctx, "known_texts", pgx.StrictNamedArgs{"pipeline_id": s.p.ID, "text_hashes": hashes})
}

func (s *server) elsewhere(ctx context.Context, pipelines []int32, hashes [][]byte) ([]knownVector, error) {
	return s.knownVectors(ctx, "known_elsewhere", pgx.StrictNamedArgs{"pipeline_ids": pipelines, "text_hashes": hashes})
}

func (s *server) knownVectors(ctx context.Context, query string, args pgx.StrictNamedArgs) ([]knownVector, error) {
	return database.Collect(ctx, s.db, query, pgx.RowToStructByNameLax[knownVector], args)
}

func (s *server) vectorsOf(ctx context.Context, p *pipeline.Pipeline, keys []string) (map[int][]float32, error) {
	return rows.New(p, s.db, rows.Options{}).Vectors(ctx, keys)
}

func (s *server) readScan(ctx context.Context) (st scanState, err error) {
	err = s.db.QueryRow(ctx, sqlfiles.Query("read_scan"), pgx.StrictNamedArgs{
		"pipeline_id": s.p.ID, "generation": s.p.Generation,
	}).Scan(&st.Phase, &st.Reason, &st.AfterKey, &st.Requested, &st.Started, &st.MayStart, &st.Barrier,
		&st.Routed, &st.Parts, &st.Lost, &st.Owners, &st.Life, &st.Which)
	if st.Owners == nil || err != nil {
		return st, err
	}
	which, known := s.p.OwnersCondition(st.Owners)
	if st.Which != nil {
		which = *st.Which + " OR " + which
	}
	// Owners in terms of an older definition cannot be mapped to rows.
	st.Which, st.Parts = &which, known
	if !known {
		st.Which = nil
	}
	return st, nil
}

// saveScan sends one transaction together with its commit: the stream may wait for its locks.
func (s *server) saveScan(ctx context.Context, before, after *scanState, begin bool, seen int, look []string,
	gather bool,
) (saved bool, err error) {
	batch := &pgx.Batch{}
	queue.QueueLocally(batch)
	if begin && before.Parts {
		batch.Queue(sqlfiles.Query("mark_partitions"), pgx.StrictNamedArgs{"pipeline_id": s.p.ID})
	}
	batch.Queue(sqlfiles.Query("save_scan"), pgx.StrictNamedArgs{
		"pipeline_id": s.p.ID, "phase": after.Phase, "after_key": after.AfterKey, "started": after.Started, "begin": begin,
		"seen": seen, "made": len(look), "table": s.p.OID, "generation": s.p.Generation,
		"old_phase": before.Phase, "old_after_key": before.AfterKey, "old_requested": before.Requested,
		"old_started": before.Started, "life": before.Life,
	}).Exec(func(tag pgconn.CommandTag) error { saved = tag.RowsAffected() > 0; return nil })
	if gather && len(look) > 0 {
		s.jobs.Gather(batch, look)
	} else if len(look) > 0 {
		queue.QueueAdd(batch, s.p.ID, pipeline.Low, look, true)
	}
	return saved, s.db.SendBatch(ctx, batch).Close()
}

func (s *server) scanProgress(ctx context.Context) (phase string, seen, expected int64, err error) {
	err = s.db.QueryRow(ctx, "SELECT phase, rows_seen, rows_expected FROM embedsidecar.scan WHERE pipeline_id = $1",
		s.p.ID).Scan(&phase, &seen, &expected)
	return phase, seen, expected, err
}

func (s *server) ledgerPage(ctx context.Context, after *string) ([]string, error) {
	return database.Collect(ctx, s.db, "ledger_page", pgx.RowTo[string],
		pgx.StrictNamedArgs{"pipeline_id": s.p.ID, "after": after, "max": rows.PageRows})
}

func (s *server) withoutTask(ctx context.Context, keys []string) ([]string, error) {
	return database.Collect(ctx, s.db, "without_task", pgx.RowTo[string],
		pgx.StrictNamedArgs{"pipeline_id": s.p.ID, "row_keys": keys})
}

func (s *server) blockers(ctx context.Context, barrier string) ([]database.Blocker, error) {
	return database.Blockers(ctx, s.db, barrier)
}
