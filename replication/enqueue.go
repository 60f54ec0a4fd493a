package replication

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
)

// longestRest bounds how long what follows a batch waits for company.
const longestRest = 25 * time.Millisecond

// checkpoint is the position that was made durable last, and when.
type checkpoint struct {
	lsn pglogrepl.LSN
	at  time.Time
}

// outdated reports whether what was taken is worth a transaction: changes always are, a position alone if somebody
// waits for it or it has moved far or long ago.
func (c checkpoint) outdated(t taken, now time.Time) bool {
	if len(t.changes) > 0 || len(t.scans) > 0 {
		return true
	}
	return t.upTo > c.lsn && (t.hurry || t.upTo >= c.lsn+idleBytes || now.Sub(c.at) >= idleTime)
}

// enqueue makes what was read durable: at once when idle. What comes while a commit is running, and for as long
// again, goes together: beside writers at full speed this halves the transactions of ours that they share the server
// with.
func (ses *session) enqueue(ctx context.Context) error {
	saved := checkpoint{ses.start, time.Now()}
	idle := time.NewTicker(time.Minute)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ses.buffer.changed:
		case <-idle.C:
		}
		t := ses.buffer.take()
		ses.s.stats.OwnWrites.Add(t.own)
		if t.tooLong > 0 {
			ses.s.stats.TooLong.Add(t.tooLong)
			ses.s.o.Log.WarnContext(ctx, "rows left out: their keys are too long for an index of the queue", "changes",
				t.tooLong)
		}
		if !saved.outdated(t, time.Now()) {
			continue
		}
		b := queue.Batch{
			Slot: ses.s.o.Slot, Epoch: ses.epoch, Changes: t.changes, Scans: t.scans,
			ScanReason: "changes that do not name their rows",
		}
		if t.upTo > saved.lsn {
			b.Checkpoint = t.upTo
		}
		began := time.Now()
		done, err := ses.enqueueBatch(ctx, b)
		if err != nil {
			return err
		}
		ses.s.stats.Made.Add(int64(done.Made))
		ses.s.stats.Joined.Add(int64(done.Joined))
		ses.s.stats.Dropped.Add(int64(done.Dropped))
		if len(b.Scans) > 0 && ses.s.o.OnCatalogue != nil {
			ses.s.o.OnCatalogue()
		}
		if b.Checkpoint == 0 {
			continue
		}
		saved = checkpoint{t.upTo, time.Now()}
		ses.s.stats.DurableLSN.Store(uint64(saved.lsn))
		ses.s.stats.Trouble.Store(nil)
		select {
		case <-ses.durable: // an older one the reader has not taken yet
		default:
		}
		ses.durable <- saved.lsn
		if len(t.changes) < maxBatch {
			now := time.Now()
			ses.pace.Spend(now.Sub(began), now)
			if !wait(ctx, ses.pace.Rest(now, longestRest)) {
				return ctx.Err()
			}
		}
	}
}

// enqueueBatch enqueues a batch, again and again while it loses against somebody's locks: a long write-back or an
// operator's bulk action is no reason to give up the slot.
func (ses *session) enqueueBatch(ctx context.Context, b queue.Batch) (queue.Enqueued, error) {
	for try := 1; ; try++ {
		done, err := ses.store(ctx, b)
		if fault := database.Judge(err); fault != database.Locked && fault != database.Conflict {
			return done, err
		}
		ses.s.o.Log.WarnContext(ctx, "enqueue lost against a lock", "error", err, "try", try)
		if !wait(ctx, min(time.Duration(try)*20*time.Millisecond, time.Second)) {
			return done, ctx.Err()
		}
	}
}
