package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/sleep"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// tellProgress tells a person what is waited for: after a few seconds, and then from time to time when that has
// changed. The function it returns ends that.
func tellProgress(ctx context.Context, env *environment, pool *pgxpool.Pool, lsn pglogrepl.LSN) (stop func()) {
	const first, longest = 3 * time.Second, 30 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		told := ""
		for pause := first; ; pause = min(2*pause, longest) {
			if !sleep.For(ctx, pause) {
				return
			}
			state, err := report.At(ctx, pool, env.config.Slot.Name, lsn)
			if err != nil { // the wait itself meets it as well
				continue
			}
			if now, _ := waitsFor(ctx, env, pool, lsn, state); now != told && ctx.Err() == nil {
				env.say("waiting: %s", now)
				told = now
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tooLate is the error of a wait whose time is over.
func tooLate(ctx context.Context, env *environment, pool *pgxpool.Pool, lsn pglogrepl.LSN,
	state report.CaughtUp,
) error {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit) // to look once more: ctx is over
	defer cancel()
	why, hint := waitsFor(ctx, env, pool, lsn, state)
	return fail(exitTimeout, fmt.Errorf("not caught up with %s in time: %s", lsn, why), hint)
}

// waitsFor words what is left to wait for, what keeps pipelines from it, and what somebody can do about that.
func waitsFor(ctx context.Context, env *environment, pool *pgxpool.Pool, lsn pglogrepl.LSN, state report.CaughtUp) (why,
	hint string,
) {
	why, hint = progress(state), "embedsidecar status tells more"
	loaded, _ := lookup.All(ctx, pool) // what cannot be looked at now is told as it was stored
	status, err := report.Options{CountUpTo: -1, AtOnce: true, Loaded: loaded}.Read(ctx, pool)
	at := slices.IndexFunc(status.Slots, func(s report.Slot) bool { return s.Name == env.config.Slot.Name })
	if err != nil || at < 0 {
		return why, hint
	}
	s := status.Slots[at]
	checkpoint, err := pglogrepl.ParseLSN(s.Checkpoint)
	if end := checkpoint + pglogrepl.LSN(max(s.LagBytes, 0)); err == nil && !state.Decoded && end < lsn {
		why += fmt.Sprintf("; the WAL of the server ends at %s so far", end)
	}
	// What keeps all of them is said once.
	var reasons []string
	for i := range status.Pipelines {
		p := &status.Pipelines[i]
		if p.Slot != s.Name || p.State == health.Paused || p.State == health.UpToDate || p.State == health.RowsFailed ||
			p.State == health.Working && p.Open() > p.Retrying {
			continue
		}
		if p.State.NeedsAct() && p.WayOut != "" {
			hint = p.WayOut
		}
		if !slices.Contains(reasons, p.Reason) {
			reasons = append(reasons, p.Reason)
		}
	}
	if len(reasons) > 0 {
		return why + "; " + strings.Join(reasons, "; "), hint
	}
	return fmt.Sprintf("%s; slot %s is %s behind", why, s.Name, wording.Size(s.LagBytes)), hint
}

// progress words how far a slot is.
func progress(state report.CaughtUp) string {
	var left []string
	if !state.Decoded {
		left = append(left, "changes are not read from the slot yet")
	}
	if state.Open > 0 {
		left = append(left, wording.Count(state.Open, "row")+" left to embed")
	}
	if state.Scans > 0 {
		left = append(left, "the scan of "+wording.Count(state.Scans, "pipeline")+" is not over")
	}
	if state.Altered > 0 {
		left = append(left, "the altered table of "+wording.Count(state.Altered, "pipeline")+" is not looked at yet")
	}
	if len(state.Unrouted) > 0 {
		left = append(left, "the streamer does not know yet: "+strings.Join(state.Unrouted, ", "))
	}
	if len(left) == 0 {
		return "the last look was not over"
	}
	return strings.Join(left, ", ")
}
