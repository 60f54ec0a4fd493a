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

// Change is one change of a row, as the WAL told it.
type Change struct {
	PipelineID  int32
	RowKey      string
	Lane        pipeline.Lane
	XID         uint32
	LSN         pglogrepl.LSN // of the commit
	FirstLSN    pglogrepl.LSN // of the first commit that a merged change stands for; 0: LSN
	CommittedAt time.Time
	// Unchanged is what the row's ledger entry must be like for the change to be dropped; nil if it must be looked at.
	Unchanged pipeline.Pattern
	Seen      pipeline.Seen // the row as its writer saw it, who says that it needs no new vector; nil: he does not
	Later     bool          // it is not worked at once
	Said      bool          // its lane is what its transaction said
	// Join: it is of a joined row, and RowKey are the values by which it hangs on others; counted from 1. It is no change
	// of a row yet, and cannot be enqueued.
	Join int
}

// first is the LSN of the oldest commit that the change stands for.
func (c *Change) first() pglogrepl.LSN {
	if c.FirstLSN != 0 {
		return c.FirstLSN
	}
	return c.LSN
}

// Batch is what one transaction makes durable.
type Batch struct {
	Slot    string
	Epoch   int64
	Changes []Change
	// Scans are pipelines whose rows can no longer be told from the WAL alone (TRUNCATE), with the reason: those of some
	// partitions, or, where there are none, every row.
	Scans      map[int32][]uint32
	ScanReason string
	// Owners are rows of pipelines that are to be compared because of what is joined to them: too many for tasks.
	Owners map[int32][]string
	// Aside keeps all of it for later, because somebody holds what it needs.
	Aside bool
	// LockTimeout is how long a lock is waited for; 0: as the session does.
	LockTimeout time.Duration
	// Checkpoint is the end LSN of the last commit that is whole in this batch; 0 leaves the checkpoint where it is.
	Checkpoint pglogrepl.LSN
	// Since is what was durable before. A checkpoint that is not there any more was restored, and what was in the queue
	// with it.
	Since pglogrepl.LSN
}

// Enqueued tells what became of a batch.
type Enqueued struct {
	Made    int // new tasks
	Joined  int // changes of rows that had a task already
	Own     int // changes of write-backs of ours
	Dropped int // changes that changed nothing
}

// How long a change whose transaction is not visible yet may hold up its batch before it simply becomes a task,
// unless SetVisibilityTimeout says otherwise. Usually its server process was only interrupted between two steps of its
// commit. But a commit may also wait for a synchronous standby that is away: after one wait in vain the next ones are
// short, until one is not in vain.
const (
	visibilityTimeout      = time.Second
	shortVisibilityTimeout = 20 * time.Millisecond
	visibilityPause        = time.Millisecond
	visibilityPauseMax     = 20 * time.Millisecond
)

// Enqueue makes a batch durable in one transaction: tasks, scan requests and LSN checkpoint. Changes may name a row
// several times, in commit order. It returns ErrEpochLost if another streamer holds the slot, or if the queue went back
// in time; then nothing was written.
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
		if err := setAside(ctx, tx, changes, b); err != nil {
			return Enqueued{}, err
		}
		if err := tx.Commit(ctx); err != nil {
			return Enqueued{}, fmt.Errorf("commit %d changes: %w", len(b.Changes), err)
		}
		q.noteAside()
		return Enqueued{Made: len(changes)}, nil
	}
	// Scan rows before task rows, as a scan's own steps lock them.
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

// begin begins the transaction of a batch and saves its checkpoint: ours tells whether the slot is, visible whether
// transactions are. Round trips are what a lone change waits for: all that needs no answer goes in one.
func (b *Batch) begin(ctx context.Context, db database.DB, changes int, xids []int64) (tx pgx.Tx, ours, visible bool,
	err error,
) {
	first := &pgx.Batch{}
	first.BeginTx(pgx.TxOptions{})
	// A role or database may default to asynchronous commit: then a crash could lose tasks that the slot was told are
	// safe. What is enqueued over a line may be more than its statements have time for.
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
	return tx, ours, visible, err // which the answers have set
}

// mayBeDropped returns the transactions of changes that may be dropped: they are in the WAL, but what they did may
// not be visible yet, and neither may the ledger entry that says it was our own.
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

// awaitVisible waits a moment for transactions to become visible, if they are not yet.
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
			return fmt.Errorf("look whether %d transactions are visible: %w", len(xids), err)
		}
	}
	if len(xids) > 0 {
		q.waitedInVain.Store(!visible)
	}
	return nil
}

// upsert makes tasks of changes and returns the lanes they wait in: each a pipeline, a lane and their lowest place.
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

// argsOf are the arguments that say what tasks are made of.
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

// Merge leaves one change per row, sorted so that two enqueues never lock tasks in opposite orders. The last
// change of a row stands for all, from the LSN of the first on; it may be dropped only if each of them could be
// dropped for the same reason.
func Merge(changes []Change) []Change {
	merged := slices.Clone(changes)
	slices.SortStableFunc(merged, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.PipelineID, b.PipelineID), cmp.Compare(a.RowKey, b.RowKey))
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
			if c.LSN = max(c.LSN, before.LSN); c.XID == 0 { // it is visible, and that of before may not be yet
				c.XID = before.XID
			}
			kept[n-1] = c
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// requestScans asks for the scans of a batch, in the order of their pipelines.
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

// ScanRequest asks that rows of pipelines be compared with the ledger, and the ledger with the rows.
type ScanRequest struct {
	Reason     string
	Pipelines  []int32
	Partitions []uint32 // whose rows alone are compared; nil: every row
	Owners     []string // pipeline.Owner: rows that alone are compared; nil: every row
	NoneGone   bool     // no row is gone: the ledger is not compared
	NoneMissed bool     // no change was missed: the ledger tells which rows are up to date
}

// mostPartitions is how many partitions a scan is asked to compare by themselves.
const mostPartitions = 32

// Send sends the request, as a part of db's transaction where that is one.
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

// RequestScan asks that all rows of pipelines be compared with the ledger, as changes may have been missed.
func RequestScan(ctx context.Context, db database.Querier, reason string, pipelineIDs []int32) error {
	return ScanRequest{Reason: reason, Pipelines: pipelineIDs}.Send(ctx, db)
}
