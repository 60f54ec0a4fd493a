package app

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// atStart logs the pending rows of each pipeline, and re-queues failed rows if configured. A failure is only logged.
func (n *Database) atStart(ctx context.Context, pool *pgxpool.Pool) {
	st, err := report.Options{CountUpTo: -1, AtOnce: true}.Read(ctx, pool)
	if err != nil {
		if ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "could not read the pending rows", "error", err)
		}
		return
	}
	var failed []string
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.Slot != n.config().Slot.Name {
			continue
		}
		oldest := 0.0
		if p.OldestSeconds != nil {
			oldest = *p.OldestSeconds
		}
		n.o.Log.InfoContext(ctx, "at the start", "pipeline", p.Name, "pending", p.Pending, "retrying", p.Retrying,
			"failed", p.Failed, "cancelled", p.Cancelled, "oldest_seconds", oldest, "scan", p.ScanPhase)
		if p.Failed > 0 {
			failed = append(failed, p.Name)
		}
	}
	if !n.config().Retry.FailedOnStart || len(failed) == 0 {
		return
	}
	done, err := verbs.New(pool, "start of "+n.config().Instance).Do(ctx, verbs.Retry, failed, verbs.Request{})
	for _, o := range done {
		n.o.Log.InfoContext(ctx, "dead letters re-queued", "pipeline", o.Pipeline, "rows", o.Rows)
	}
	if err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "could not re-queue dead letters", "error", err)
	}
}
