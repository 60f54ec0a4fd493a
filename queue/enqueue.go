package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Change is one change of a row, from the WAL.
type Change struct {
	PipelineID  int32
	RowKey      string
	Lane        pipeline.Lane
	XID         uint32
	LSN         pglogrepl.LSN // of the commit
	FirstLSN    pglogrepl.LSN // first commit covered by a merged change; 0: LSN
	CommittedAt time.Time
	// Unchanged matches the row's ledger entry if the change may be dropped; nil: it must be processed.
	Unchanged pipeline.Pattern
	Seen      pipeline.Seen // the row as seen by a writer who declared that it needs no new vector; nil: none did
	Later     bool          // it is not processed directly
	Said      bool          // its lane comes from a hint of its transaction
	// Join is the number of the joined table, from 1; RowKey then holds the join values. Such a change must be replaced
	// by changes of source rows before Enqueue.
	Join int
}

// first returns the LSN of the oldest commit that the change covers.
func (c *Change) first() pglogrepl.LSN { return cmp.Or(c.FirstLSN, c.LSN) }

// Batch is what one transaction makes durable.
type Batch struct {
	Slot    string
	Epoch   int64
	Changes []Change
	// Scans are pipelines whose changed rows are unknown (TRUNCATE), with the partitions to compare; none: every row.
	Scans      map[int32][]uint32
	ScanReason string
	// Owners are the rows of pipelines to compare because joined rows changed: too many for tasks.
	Owners map[int32][]string
	// Aside stores the batch for later, because another session holds locks that it needs.
	Aside bool
	// LockTimeout replaces the session's lock_timeout; 0: unchanged.
	LockTimeout time.Duration
	// Checkpoint is the end LSN of the last complete commit in this batch; 0: the checkpoint does not move.
	Checkpoint pglogrepl.LSN
	// Since is the previous checkpoint. If the stored one is lower, the database was restored, and its queue with it.
	Since pglogrepl.LSN
}

// Enqueued is the outcome of a batch.
type Enqueued struct {
	Made    int // new tasks
	Joined  int // changes of rows that already had a task
	Own     int // changes by our own write-backs
	Dropped int // changes that changed nothing
}

// visibilityTimeout is how long a batch waits for transactions that are in the WAL but not visible yet; then their
// changes become tasks. Usually the backend is between two steps of its commit, but a commit may also wait for a
// synchronous standby that is down. After a timeout the next waits are short, until one succeeds.
const (
	visibilityTimeout      = time.Second
	shortVisibilityTimeout = 20 * time.Millisecond
	visibilityPause        = time.Millisecond
	visibilityPauseMax     = 20 * time.Millisecond
)

// Enqueue makes a batch durable in one transaction: tasks, scan requests and LSN checkpoint. Changes may repeat
// rows. It returns ErrEpochLost, having written nothing, if another stream holds the slot or the database was restored.
func (q *Queue) Enqueue(ctx context.Context, db database.DB, b Batch) (Enqueued, error) {
	changes := Merge(b.Changes)
	xids := mayBeDropped(changes)
	if b.Aside {
		xids = nil
	}
	tx, ours, visible, err := b.begin(ctx, db, len(changes), xids)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %d changes, checkpoint %s of slot %q: %w", len(b.Changes), b.Checkpoint,
			b.Slot, err)
	}
	if !ours {
		return Enqueued{}, ErrEpochLost
	}
	if b.Aside {
		return q.enqueueAside(ctx, tx, changes, b)
	}
	// Lock scan rows before task rows, in the same order as the scan does.
	if err := b.requestScans(ctx, tx); err != nil {
		return Enqueued{}, err
	}
	if err := q.awaitVisible(ctx, tx, xids, visible); err != nil {
		return Enqueued{}, err
	}
	done, touched, err := upsert(ctx, tx, changes)
	if err != nil {
		return Enqueued{}, err
	}
	if err := failpoint.Hit("queue/before-enqueue-commit"); err != nil {
		return Enqueued{}, err
	}
	if err := tx.Commit(ctx); err != nil {
		return Enqueued{}, fmt.Errorf("commit %d changes: %w", len(b.Changes), err)
	}
	if err := failpoint.Hit("queue/after-enqueue-commit"); err != nil {
		return Enqueued{}, err
	}
	q.wakeLanes(touched)
	return done, nil
}

// begin starts the transaction of a batch and saves its checkpoint, in one round trip to keep the latency low. ours
// reports whether the epoch is still valid, visible whether all xids are visible.
func (b *Batch) begin(ctx context.Context, db database.DB, changes int, xids []int64) (tx pgx.Tx, ours, visible bool,
	err error,
) {
	first := &pgx.Batch{}
	first.BeginTx(pgx.TxOptions{})
	// A role or database may default to asynchronous commit: a crash could then lose tasks that the slot was told are
	// safe. A large batch over a Line may exceed its statement_timeout.
	first.Queue("SELECT set_config('synchronous_commit', 'on', true), set_config('statement_timeout', '0', true)")
	if b.LockTimeout > 0 {
		first.Queue(fmt.Sprintf("SET LOCAL lock_timeout = %d", b.LockTimeout.Milliseconds()))
	}
	database.PlanOnce(db, first, changes)
	var lsn *string
	if b.Checkpoint != 0 {
		s := b.Checkpoint.String()
		lsn = &s
	}
	first.Queue(sqlfiles.Query("save_checkpoint"), pgx.StrictNamedArgs{
		"slot": b.Slot, "epoch": b.Epoch, "since": b.Since.String(), "lsn": lsn,
	}).Query(func(rows pgx.Rows) error {
		ours = rows.Next()
		return nil
	})
	if visible = true; len(xids) > 0 {
		first.Queue(sqlfiles.Query("visible_xids"),
			pgx.StrictNamedArgs{"xids": xids}).QueryRow(func(row pgx.Row) error { return row.Scan(&visible) })
	}
	results := db.SendBatch(ctx, first)
	tx, err = results.Tx(), results.Close()
	return tx, ours, visible, err // set by the batch's callbacks
}

// mayBeDropped returns the transactions of changes that may be dropped. They are in the WAL, but their effects,
// including our ledger entries, may not be visible yet.
func mayBeDropped(changes []Change) []int64 {
	var xids []int64
	seen := map[uint32]bool{}
	for _, c := range changes {
		if c.Unchanged != nil && !seen[c.XID] {
			seen[c.XID] = true
			xids = append(xids, int64(c.XID))
		}
	}
	return xids
}

// awaitVisible waits briefly until the transactions are visible.
func (q *Queue) awaitVisible(ctx context.Context, tx pgx.Tx, xids []int64, visible bool) error {
	timeout := q.visibilityTimeout
	if q.waitedInVain.Load() {
		timeout = shortVisibilityTimeout
	}
	deadline := time.Now().Add(timeout)
	for pause := visibilityPause; !visible && time.Now().Before(deadline); pause = min(2*pause, visibilityPauseMax) {
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
		if err := tx.QueryRow(ctx, sqlfiles.Query("visible_xids"),
			pgx.StrictNamedArgs{"xids": xids}).Scan(&visible); err != nil {
			return fmt.Errorf("check whether %d transactions are visible: %w", len(xids), err)
		}
	}
	if len(xids) > 0 {
		q.waitedInVain.Store(!visible)
	}
	return nil
}

// upsert turns changes into tasks. It returns the affected lanes: pipeline, lane and lowest place of each.
func upsert(ctx context.Context, tx pgx.Tx, changes []Change) (done Enqueued, touched [][]int64, err error) {
	if len(changes) == 0 {
		return Enqueued{}, nil, nil
	}
	args := argsOf(changes)
	args["patterns"] = lists.Map(changes, func(c Change) []byte { return c.Unchanged })
	args["seens"] = lists.Map(changes, func(c Change) []byte { return c.Seen })
	err = tx.QueryRow(ctx, sqlfiles.Query("enqueue_tasks"), args).
		Scan(&done.Made, &done.Joined, &done.Own, &done.Dropped, &touched)
	return done, touched, wrap.Errorf(err, "enqueue %d changes", len(changes))
}

// argsOf returns the arguments that describe tasks.
func argsOf(changes []Change) pgx.StrictNamedArgs {
	n := len(changes)
	ids, keys, lanes, xids := make([]int32, n), make([]string, n), make([]int16, n), make([]int64, n)
	firsts, lasts, times := make([]string, n), make([]string, n), make([]time.Time, n)
	for i := range changes {
		c := &changes[i]
		ids[i], keys[i], lanes[i], xids[i] = c.PipelineID, c.RowKey, int16(c.Lane), int64(c.XID)
		firsts[i], lasts[i], times[i] = c.first().String(), c.LSN.String(), c.CommittedAt
	}
	return pgx.StrictNamedArgs{
		"pipeline_ids": ids, "row_keys": keys, "lanes": lanes, "xids": xids, "first_lsns": firsts, "last_lsns": lasts,
		"committed_ats": times,
	}
}

// Merge leaves one change per row, sorted so that two enqueues never lock tasks in opposite orders. The last change of
// a row by its commit, in whatever order they come, replaces the others and covers them from the first LSN on. It may
// be dropped only if each of them may be dropped for the same reason.
func Merge(changes []Change) []Change {
	merged := slices.Clone(changes)
	slices.SortStableFunc(merged, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.PipelineID, b.PipelineID), cmp.Compare(a.RowKey, b.RowKey), cmp.Compare(a.LSN, b.LSN))
	})
	kept := merged[:0]
	for _, c := range merged {
		if n := len(kept); n > 0 && kept[n-1].PipelineID == c.PipelineID && kept[n-1].RowKey == c.RowKey {
			before := kept[n-1]
			c.Lane = max(c.Lane, before.Lane)
			c.CommittedAt, c.FirstLSN = before.CommittedAt, min(before.first(), c.first())
			if before.Unchanged == nil || !slices.Equal(before.Unchanged, c.Unchanged) {
				c.Unchanged = nil
			}
			c.Seen, c.Later = before.Seen.With(c.Seen), before.Later && c.Later
			if c.LSN = max(c.LSN, before.LSN); c.XID == 0 { // already visible, unlike perhaps before's
				c.XID = before.XID
			}
			kept[n-1] = c
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// requestScans requests the scans of a batch, ordered by pipeline.
func (b *Batch) requestScans(ctx context.Context, tx pgx.Tx) error {
	for _, id := range slices.Sorted(maps.Keys(b.Scans)) {
		r := ScanRequest{Reason: b.ScanReason, Pipelines: []int32{id}, Partitions: b.Scans[id]}
		if err := r.Send(ctx, tx); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Owners)) {
		r := ScanRequest{Reason: "a joined row was changed", Pipelines: []int32{id}, Owners: b.Owners[id], NoneGone: true}
		if err := r.Send(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// ScanRequest requests that rows of pipelines are compared with the ledger, and the ledger with the rows.
type ScanRequest struct {
	Reason     string
	Pipelines  []int32
	Partitions []uint32 // compare only their rows; nil: every row
	Owners     []string // pipeline.Owner: compare only these rows; nil: every row
	NoneGone   bool     // no row was removed: the ledger is not compared with the rows
	NoneMissed bool     // no change was missed: the ledger tells which rows are up to date
}

// mostPartitions is the maximum number of partitions in one request; more means every row.
const mostPartitions = 32

// Send sends the request in db's transaction, if db is one.
func (r ScanRequest) Send(ctx context.Context, db database.Querier) error {
	if len(r.Partitions) > mostPartitions {
		r.Partitions, r.NoneGone = nil, false
	}
	_, err := db.Exec(ctx, sqlfiles.Query("request_scan"), pgx.StrictNamedArgs{
		"pipeline_ids": r.Pipelines, "reason": r.Reason, "partitions": r.Partitions, "owners": r.Owners,
		"lost": !r.NoneGone, "gap": !r.NoneMissed,
	})
	return wrap.Errorf(err, "request a scan (%s)", r.Reason)
}

// RequestScan requests that all rows of pipelines are compared with the ledger, because changes may have been missed.
func RequestScan(ctx context.Context, db database.Querier, reason string, pipelineIDs []int32) error {
	return ScanRequest{Reason: reason, Pipelines: pipelineIDs}.Send(ctx, db)
}
