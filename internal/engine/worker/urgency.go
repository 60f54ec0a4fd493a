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

// Urgency asks rows of a pipeline how urgent they are, also while the pipeline is not at work. It is not safe for
// concurrent use: the stream waits for it.
type Urgency struct {
	Pipeline pipeline.Pipeline

	lanes lanesOf
	limit time.Duration
	log   *slog.Logger
	quick quick     // the stream does not wait for an expression that kept it waiting, or fails
	told  time.Time // when it was said last that it does
}

// NewUrgency returns that of a pipeline whose rows say how urgent they are.
func NewUrgency(p pipeline.Pipeline, db database.DB, limit time.Duration, log *slog.Logger) *Urgency {
	u := &Urgency{Pipeline: p, limit: cmp.Or(limit, QuickEnough), log: log}
	u.lanes = rows.New(&u.Pipeline, db, rows.Options{}).Lanes
	return u
}

// Prioritise gives changes of the pipeline the lanes that their rows say they are in. Those of rows that are gone, or
// say nothing, keep the lane that they have, and so do all while the expression takes long or fails.
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

// prioritise is Prioritise as far as rows are visible now. A row whose expression fails is found by halving, as long as
// there is time.
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
		return true, nil // it is this row's trouble alone
	}
	half := len(changes) / 2
	first, err := u.prioritise(ctx, changes[:half], deadline)
	if err != nil {
		return false, err
	}
	second, err := u.prioritise(ctx, changes[half:], deadline)
	return first && second, err
}

// notUrgent notes that rows could not be asked: for a while none of the pipeline are.
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

// lanesOf asks rows how urgent they are: rows.Table.Lanes.
type lanesOf func(ctx context.Context, keys []string, xids []int64, limit time.Duration) (
	map[string]pipeline.Lane, bool, error)
