package app

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// atStart says what waits when a sidecar starts, and tries dead letters again if the configuration says so. Neither is
// a reason not to work.
func (n *Database) atStart(ctx context.Context, pool *pgxpool.Pool) {
	st, err := report.Options{CountUpTo: -1, AtOnce: true}.Read(ctx, pool)
	if err != nil {
		if ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "what waits is not known", "error", err)
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
		n.o.Log.InfoContext(ctx, "dead letters are tried again", "pipeline", o.Pipeline, "rows", o.Rows)
	}
	if err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "dead letters are not tried again", "error", err)
	}
}
