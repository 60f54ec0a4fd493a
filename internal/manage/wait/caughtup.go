// Package caughtup waits until the vectors have caught up with the committed changes. It reports what it waits for,
// what delays pipelines, and what is left that waiting does not help.
package caughtup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Wait waits for the pipelines of a slot to catch up with an LSN.
type Wait struct {
	Pool   *pgxpool.Pool
	Slot   string
	LSN    pglogrepl.LSN
	Once   bool                // do not wait: report the current state
	Redact func(string) string // removes secrets from the messages of failed rows
	// Tell is called from time to time with what is waited for; nil: no progress reports.
	Tell func(what string)
	// Every is the interval of the checks for a change; with it, Tell is called with "" at the end. 0: seldom.
	Every time.Duration
	// Progress, if set, returns the progress to report instead of the rows left, unless something blocks the pipelines;
	// "" means that there is nothing to report.
	Progress func(ctx context.Context) string
}

// Answer is how far the pipelines have caught up.
type Answer struct {
	LSN string `json:"lsn"`
	Yes bool   `json:"caught_up"` // nothing is left to wait for, and every pipeline works
	report.CaughtUp
}

// Run waits until nothing is left that waiting helps, or until ctx ends. It also returns the answer with an error: what
// is left, or, if ctx has timed out, what is still waited for.
func (w Wait) Run(ctx context.Context) (Answer, error) {
	state, err := w.wait(ctx)
	switch {
	case errors.Is(err, report.ErrNoSlot):
		err = problem.New(problem.NotSetUp, fmt.Errorf("slot %q is not set up in this database", w.Slot),
			lookup.OtherSlots(ctx, w.Pool), "or set it up: embedsidecar init")
	case errors.Is(err, report.ErrNoPipeline):
		err = problem.New(problem.NotSetUp, fmt.Errorf("no pipeline of slot %q is set up in this database", w.Slot),
			"embedsidecar init sets them up")
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded), err == nil && !state.Yes():
		err = w.tooLate(ctx, state)
	case err == nil:
		err = w.LeftOver(ctx, state)
	}
	// A pipeline that does not work gets no vectors. So, as in SQL, caught_up is false with one.
	a := Answer{w.LSN.String(), state.Yes() && len(state.Resting) == 0, state}
	a.Resting, a.Unrouted = append([]string{}, a.Resting...), append([]string{}, a.Unrouted...)
	return a, err
}

func (w Wait) wait(ctx context.Context) (report.CaughtUp, error) {
	if w.Once {
		return report.Look(ctx, w.Pool, w.Slot, w.LSN)
	}
	stop := w.tell(ctx)
	defer stop()
	return report.Wait(ctx, w.Pool, w.Slot, w.LSN)
}

// tell reports what is waited for: after a few seconds, and then from time to time if it has changed. The returned
// function stops it.
func (w Wait) tell(ctx context.Context) (stop func()) {
	const first, longest = 3 * time.Second, 30 * time.Second
	if w.Tell == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		told, clock := "", report.Countdown{}
		for pause := cmp.Or(w.Every, first); ; pause = cmp.Or(w.Every, min(2*pause, longest)) {
			if !sleep.For(ctx, pause) {
				return
			}
			state, err := report.At(ctx, w.Pool, w.Slot, w.LSN)
			if err != nil { // the wait itself gets this error, too
				continue
			}
			now := w.waitsFor(ctx, state)
			bar := ""
			if !now.held && w.Progress != nil {
				bar = w.Progress(ctx)
			} else if !now.held && now.left > 0 {
				progress := clock.Look(now.left, time.Now())
				progress.AtLeast = now.more
				bar = progress.String()
			}
			switch {
			case ctx.Err() != nil, w.Every == 0 && now.why == told && (bar == "" || w.Progress == nil):
			case bar != "" && (w.Every > 0 || w.Progress != nil): // it changes each time and fits on one line
				w.Tell(bar)
			case bar != "":
				w.Tell(bar + "; " + now.why)
			default:
				w.Tell(now.why)
			}
			told = now.why
		}
	}()
	return func() {
		cancel()
		<-done
		if w.Every > 0 {
			w.Tell("")
		}
	}
}

// lastLook returns a context for queries after the wait: it outlives the deadline of ctx by a moment, and ends at once
// if ctx is cancelled for another reason.
func lastLook(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	if now := time.Now(); deadline.Before(now) {
		deadline = now
	}
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(5*time.Second))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return late, func() {
		stop()
		cancel()
	}
}

// tooLate returns the error of a wait that timed out.
func (w Wait) tooLate(ctx context.Context, state report.CaughtUp) error {
	ctx, cancel := lastLook(ctx)
	defer cancel()
	now := w.waitsFor(ctx, state)
	return problem.New(problem.Timeout, fmt.Errorf("not caught up with %s in time: %s", w.LSN, now.why), now.hint)
}

type left struct {
	why  string // what is left, and what blocks pipelines
	hint string // what the user can do about it
	held bool   // whether something blocks a pipeline
	left int64  // approximate number of rows
	more bool   // whether more rows are left than were counted
}

// resting lists the states of pipelines that a wait does not wait for.
var resting = []health.Code{
	health.Paused, health.OutsideHours, health.BudgetSpent, health.RowsFailed, health.RowsCancelled,
}

func (w Wait) load(ctx context.Context) ([]pipeline.Pipeline, error) { return lookup.All(ctx, w.Pool) }

// waitsFor describes what is left to wait for.
func (w Wait) waitsFor(ctx context.Context, state report.CaughtUp) left {
	now := left{why: Left(state), hint: "embedsidecar status shows details"}
	status, err := report.Options{CountUpTo: -1, AtOnce: true, Load: w.load}.Read(ctx, w.Pool)
	at := slices.IndexFunc(status.Slots, func(s report.Slot) bool { return s.Name == w.Slot })
	if err != nil || at < 0 {
		return now
	}
	s := status.Slots[at]
	checkpoint, err := pglogrepl.ParseLSN(s.Checkpoint)
	if end := checkpoint + pglogrepl.LSN(max(s.LagBytes, 0)); err == nil && !state.Decoded && end < w.LSN {
		now.why += fmt.Sprintf("; the WAL of the server ends at %s so far", end)
	}
	// A reason that applies to all of them is reported once.
	var reasons []string
	for i := range status.Pipelines {
		p := &status.Pipelines[i]
		if p.Slot != s.Name {
			continue
		}
		if p.Works {
			now.left += p.Left()
			now.more = now.more || p.Capped()
		}
		if p.AtWork() || slices.Contains(resting, p.State) {
			continue
		}
		now.held = now.held || p.State != health.Backfill && p.State != health.Comparing
		if p.NeedsAct && len(p.Hints) > 0 {
			now.hint = wording.Joined(p.Hints)
		}
		reasons = lists.Add(reasons, p.Reason)
	}
	if len(reasons) > 0 {
		now.why += "; " + strings.Join(reasons, "; ")
		return now
	}
	now.why += fmt.Sprintf("; slot %s is %s behind", s.Name, wording.Size(s.LagBytes))
	return now
}

// Left describes what is left to wait for.
func Left(state report.CaughtUp) string {
	var left []string
	if !state.Decoded {
		left = append(left, "the latest changes are not read yet")
	}
	if state.Open > 0 {
		left = append(left, wording.Count(state.Open, "row")+" left to embed")
	}
	if state.Scans > 0 {
		left = append(left, "the scan of "+wording.Count(state.Scans, "pipeline")+" is still running")
	}
	if state.Altered > 0 {
		left = append(left, "the altered table of "+wording.Count(state.Altered, "pipeline")+" is not looked at yet")
	}
	if len(state.Unrouted) > 0 {
		left = append(left, "the streamer does not know yet: "+strings.Join(state.Unrouted, ", "))
	}
	if len(left) == 0 {
		return "the last query did not finish"
	}
	return strings.Join(left, ", ")
}

// LeftOver returns an error if something was not waited for because waiting would not help. It names the pipelines, the
// reason of each, and the first failed rows. If these cannot be read now, the error comes without them.
func (w Wait) LeftOver(ctx context.Context, state report.CaughtUp) error {
	if state.Failed == 0 && state.Cancelled == 0 && state.PutOff == 0 && len(state.Resting) == 0 {
		return nil
	}
	ctx, cancel := lastLook(ctx)
	defer cancel()
	failed, resting, err := w.details(ctx, state)
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	what := "caught up, except for what waiting does not help: "
	left, ways := passed("", state.Failed, state.Cancelled, state.PutOff)
	hints := append(failed, ways...)
	if len(state.Resting) > 0 {
		what = "not caught up, and waiting does not help: "
		left = append(left, "inactive: "+strings.Join(state.Resting, ", "))
		hints = append(hints, resting...)
	}
	if err != nil {
		hints = append(hints, "the reasons could not be read: "+database.Words(err)+"; embedsidecar status shows details")
	}
	return problem.New(problem.Failed, errors.New(what+strings.Join(left, "; ")), hints...)
}

// passed describes the rows that are not waited for, of one pipeline or of all, with hints.
func passed(of string, failed, cancelled, putOff int64) (words, hints []string) {
	for _, one := range []struct {
		rows       int64
		what, hint string
	}{
		{failed, " could not be embedded", "embedsidecar tasks list --state failed lists all of them and why; once that is " +
			"mended, embedsidecar tasks retry tries them again"},
		{cancelled, " cancelled", "embedsidecar tasks list --state cancelled names them; embedsidecar tasks requeue takes " +
			"them back"},
		{putOff, " put off", "embedsidecar tasks list --state retrying names the rows that were put off, and until when; " +
			"embedsidecar tasks requeue with their keys has them embedded now"},
	} {
		if one.rows > 0 {
			words, hints = append(words, wording.Count(one.rows, "row")+of+one.what), append(hints, one.hint)
		}
	}
	return words, hints
}

// details returns why rows failed, and why each resting pipeline does not work.
func (w Wait) details(ctx context.Context, state report.CaughtUp) (failed, resting []string, err error) {
	status, err := report.Options{CountUpTo: -1, Load: w.load}.Read(ctx, w.Pool) // without the coverage
	if err != nil {
		return nil, nil, err
	}
	for i := range status.Pipelines {
		if p := &status.Pipelines[i]; slices.Contains(state.Resting, p.Name) {
			resting = append(resting, p.Name+": "+p.Health().String())
		}
	}
	if state.Failed == 0 {
		return nil, resting, nil
	}
	causes, err := observe.Causes(ctx, w.Pool, status.Pipelines, w.Redact)
	for i := range causes {
		if causes[i].State == "failed" {
			failed = append(failed, causes[i].Line())
		}
	}
	return failed, resting, err
}

// ParseLSN parses an LSN as PostgreSQL does. (pglogrepl's parser accepts trailing junk and overlong halves.)
func ParseLSN(s string) (pglogrepl.LSN, error) {
	high, low, ok := strings.Cut(s, "/")
	h, err := lsnHalf(high)
	l, err2 := lsnHalf(low)
	if !ok || errors.Join(err, err2) != nil {
		return 0, fmt.Errorf("expected an LSN such as 0/16B3748, not %q", s)
	}
	return pglogrepl.LSN(h<<32 | l), nil
}

func lsnHalf(s string) (uint64, error) {
	if len(s) > 8 { // leading zeros
		return 0, strconv.ErrRange
	}
	return strconv.ParseUint(s, 16, 32)
}
