package replication

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
)

// mostDirect is the maximum number of changes processed directly. For more, tasks are cheaper than delaying the stream.
const mostDirect = 500

// checkpoint is the last position made durable.
type checkpoint struct {
	lsn    pglogrepl.LSN
	at     time.Time // when it was saved, or when the first change after it was processed directly
	direct bool      // changes after it were processed directly
}

// outdated reports whether the batch is worth a transaction. Changes always are; a position alone is if a client waits
// for it or if it moved far enough or long enough ago.
func (c checkpoint) outdated(t taken, now time.Time) bool {
	if len(t.changes) > 0 || len(t.scans) > 0 || len(t.owners) > 0 {
		return true
	}
	return t.upTo > c.lsn && (t.hurry || t.upTo >= c.lsn+idleBytes || now.Sub(c.at) >= c.longest())
}

// longest is how long the checkpoint may lag. After a crash, rows processed since then are found unchanged.
func (c checkpoint) longest() time.Duration {
	if c.direct {
		return time.Second
	}
	return idleTime
}

// enqueue makes changes durable, at once when idle. Changes that arrive during a commit, and for as long again, form
// one batch. Beside writers at full speed this halves the number of our transactions.
func (ses *session) enqueue(ctx context.Context) error {
	saved := checkpoint{lsn: ses.start, at: time.Now()}
	idle := time.NewTimer(time.Minute)
	defer idle.Stop()
	for set := idleTime; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ses.buffer.changed:
		case <-idle.C:
			set = 0
		}
		t := ses.buffer.take()
		if t.tooLong > 0 {
			ses.s.stats.TooLong.Add(t.tooLong)
			ses.s.o.Log.WarnContext(ctx, "rows left out: their keys are too long for an index of the queue", "changes",
				t.tooLong)
		}
		n, began := len(t.changes), time.Now()
		embedding, err := ses.handle(ctx, &t, &saved)
		if err != nil {
			return err
		}
		if most := saved.longest(); most != set { // resetting it each time would wake the timer thread
			idle.Reset(min(time.Minute, most))
			set = most
		}
		if n > 0 && !ses.rest(ctx, n, time.Since(began)-embedding) {
			return ctx.Err()
		}
	}
}

// handle processes changes directly or enqueues them as tasks. It returns how long it waited for embedders.
func (ses *session) handle(ctx context.Context, t *taken, saved *checkpoint) (embedding time.Duration, err error) {
	if err := ses.owners(ctx, t); err != nil {
		return 0, err
	}
	worked, embedding, err := ses.direct(ctx, t)
	if err != nil {
		return 0, err
	}
	if worked {
		if err := failpoint.Hit("replication/after-direct"); err != nil {
			return 0, err
		}
		if !saved.direct {
			saved.at, saved.direct = time.Now(), true
		}
	}
	if !saved.outdated(*t, time.Now()) {
		return embedding, nil
	}
	return embedding, ses.save(ctx, t, saved)
}

// owners replaces changes of joined rows by changes of the source rows that use them. It queries nothing if there are
// none.
func (ses *session) owners(ctx context.Context, t *taken) error {
	if !slices.ContainsFunc(t.changes, func(c queue.Change) bool { return c.Join != 0 }) {
		return nil
	}
	if ses.s.o.Owners == nil {
		return errors.New("the stream has no function to find the source rows of joined rows")
	}
	changes, scans, err := ses.s.o.Owners(ctx, t.changes)
	if err != nil {
		return err
	}
	t.changes, t.owners = changes, map[int32][]string{}
	for id, list := range scans {
		if list == nil {
			if t.scans == nil {
				t.scans = map[int32][]uint32{}
			}
			t.scans[id] = nil
			continue
		}
		for _, o := range list {
			t.owners[id] = append(t.owners[id], o.String())
		}
	}
	return nil
}

// direct processes changes directly if there are few, and keeps the rest in t. It reports whether it processed any.
func (ses *session) direct(ctx context.Context, t *taken) (worked bool, embedding time.Duration, err error) {
	if ses.s.o.Direct == nil || len(t.changes) == 0 || len(t.changes) > mostDirect || len(t.scans) > 0 {
		return false, 0, nil
	}
	d, err := ses.s.o.Direct(ctx, ses.epoch, t.changes)
	if err != nil {
		return false, 0, err
	}
	t.changes = d.Left
	ses.s.stats.Direct.Add(int64(d.Done))
	ses.s.stats.OwnWrites.Add(int64(d.Own))
	ses.s.stats.Dropped.Add(int64(d.Dropped))
	return d.Done+d.Own+d.Dropped > 0, d.Embedding, nil
}

// save stores the rest of a batch with its position and notifies the reader.
func (ses *session) save(ctx context.Context, t *taken, saved *checkpoint) error {
	if ses.s.o.Prioritise != nil && len(t.changes) > 0 {
		ses.s.o.Prioritise(ctx, t.changes)
	}
	b := queue.Batch{
		Slot: ses.s.o.Slot, Epoch: ses.epoch, Changes: t.changes, Scans: t.scans, Owners: t.owners,
		ScanReason: "changes that do not name their rows", Since: saved.lsn,
	}
	if t.upTo > saved.lsn {
		b.Checkpoint = t.upTo
	}
	done, err := ses.enqueueBatch(ctx, b)
	if err != nil {
		return err
	}
	ses.s.stats.enqueued(done)
	if ses.s.o.Enqueued != nil && len(t.changes) > 0 {
		ses.s.o.Enqueued(ctx, t.changes, t.at)
	}
	if len(b.Scans)+len(b.Owners) > 0 && ses.s.o.OnScan != nil {
		ses.s.o.OnScan()
	}
	if b.Checkpoint == 0 {
		return nil
	}
	*saved = checkpoint{lsn: t.upTo, at: time.Now()}
	ses.s.stats.DurableLSN.Store(uint64(saved.lsn))
	ses.s.stats.Trouble.Store(nil)
	ses.tellReader(saved.lsn)
	return nil
}

// tellReader passes a durable position to the reader, which confirms it.
func (ses *session) tellReader(lsn pglogrepl.LSN) {
	select {
	case <-ses.durable: // an older position that the reader has not taken yet
	default:
	}
	ses.durable <- lsn
}

// enqueued counts a batch.
func (s *Stats) enqueued(done queue.Enqueued) {
	s.Made.Add(int64(done.Made))
	s.Joined.Add(int64(done.Joined))
	s.OwnWrites.Add(int64(done.Own))
	s.Dropped.Add(int64(done.Dropped))
}

// enqueueBatch enqueues a batch. Changes blocked by another session's locks are set aside, so that the session delays
// only its own rows. While locks were hit recently, batches use a short lock timeout. If setting aside also fails, it
// retries: a lock is no reason to give up the slot.
func (ses *session) enqueueBatch(ctx context.Context, b queue.Batch) (queue.Enqueued, error) {
	const lately, soon = 10 * time.Second, 20 * time.Millisecond
	if time.Since(ses.heldUp) < lately {
		b.LockTimeout = soon
	}
	for try := 1; ; try++ {
		done, err := ses.store(ctx, b)
		if fault := database.Judge(err); fault != database.Locked && fault != database.Conflict {
			return done, err
		}
		if !b.Aside {
			ses.holdUp(ctx, lately, err)
			b.Aside = true
			continue
		}
		ses.s.o.Log.WarnContext(ctx, "enqueue blocked by a lock", "error", err, "try", try)
		if !wait(ctx, min(time.Duration(try)*20*time.Millisecond, time.Second)) {
			return done, ctx.Err()
		}
	}
}

func (s *Stream) store(ctx context.Context, b queue.Batch) (done queue.Enqueued, err error) {
	if s.o.Line == nil {
		return s.o.Queue.Enqueue(ctx, s.o.DB, b)
	}
	conn, err := s.o.Line.Conn(ctx)
	if err != nil {
		return done, err
	}
	defer func() { s.o.Line.Failed(ctx, err) }()
	return s.o.Queue.Enqueue(ctx, conn, b)
}

// holdUp records that another session blocks the queue, and logs its transactions unless it did so recently.
func (ses *session) holdUp(ctx context.Context, lately time.Duration, err error) {
	if time.Since(ses.heldUp) >= lately && ses.s.o.DB != nil {
		holders, _ := database.QueueHolders(ctx, ses.s.o.DB) // without an answer the log names none
		ses.s.o.Log.WarnContext(ctx, "changes set aside: another session holds the queue", "error", err, "transactions",
			strings.Join(database.Named(holders), "; "))
	}
	ses.heldUp = time.Now()
}
