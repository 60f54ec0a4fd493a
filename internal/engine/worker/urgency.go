package worker

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Urgency reads the lanes that rows of a pipeline specify, even while the pipeline is stopped. It is not safe for
// concurrent use; only the stream uses it.
type Urgency struct {
	Pipeline pipeline.Pipeline

	lanes lanesOf
	limit time.Duration
	log   *slog.Logger
	quick quick     // pauses an expression that is slow or fails
	told  time.Time // last log entry about that
}

// NewUrgency returns the Urgency of a pipeline whose rows specify their lane.
func NewUrgency(p pipeline.Pipeline, db database.DB, limit time.Duration, log *slog.Logger) *Urgency {
	u := &Urgency{Pipeline: p, limit: cmp.Or(limit, QuickEnough), log: log}
	u.lanes = rows.New(&u.Pipeline, db, rows.Options{}).Lanes
	return u
}

// Prioritise sets the lanes of changes to those that their rows specify. Changes of missing rows and of rows without a
// lane keep theirs, as do all while the expression is slow or fails.
func (u *Urgency) Prioritise(ctx context.Context, changes []*queue.Change) {
	if u.quick.setAside() {
		return
	}
	deadline := time.Now().Add(u.limit)
	for pause := firstPause; ; pause *= 2 {
		visible, err := u.prioritise(ctx, changes, deadline)
		if err != nil && ctx.Err() == nil {
			u.notUrgent(ctx, err)
		}
		if err != nil || visible || !sleep.For(ctx, min(pause, time.Until(deadline))) || !time.Now().Before(deadline) {
			return
		}
	}
}

// prioritise is Prioritise for the rows that are visible now. If the expression fails for a row, it is found by halving
// while there is time.
func (u *Urgency) prioritise(ctx context.Context, changes []*queue.Change, deadline time.Time) (visible bool,
	err error,
) {
	keys, xids, seen := make([]string, len(changes)), []int64{}, map[uint32]bool{}
	for i, c := range changes {
		keys[i] = c.RowKey
		if !seen[c.XID] {
			seen[c.XID] = true
			xids = append(xids, int64(c.XID))
		}
	}
	limit := max(time.Until(deadline), time.Millisecond)
	lanes, visible, err := u.lanes(ctx, keys, xids, limit)
	if err == nil {
		for _, c := range changes {
			if lane, says := lanes[c.RowKey]; says {
				c.Lane = lane
			}
		}
		return visible, nil
	}
	if rows.Fault(err) != database.Data || limit <= time.Millisecond {
		return false, err
	}
	if len(changes) == 1 {
		return true, nil // only this row is affected
	}
	half := len(changes) / 2
	first, err := u.prioritise(ctx, changes[:half], deadline)
	if err != nil {
		return false, err
	}
	second, err := u.prioritise(ctx, changes[half:], deadline)
	return first && second, err
}

// notUrgent records that the lanes could not be read, and pauses reading them.
func (u *Urgency) notUrgent(ctx context.Context, err error) {
	const apart = time.Minute
	u.quick.keptWaiting()
	if time.Since(u.told) < apart {
		return
	}
	u.told = time.Now()
	u.log.WarnContext(ctx, "the expression for the priority takes too long or fails: rows have the priority normal",
		"pipeline", u.Pipeline.Name, "error", quiet(err))
}

// lanesOf reads the lanes of rows: rows.Table.Lanes.
type lanesOf func(ctx context.Context, keys []string, xids []int64, limit time.Duration) (
	map[string]pipeline.Lane, bool, error)
