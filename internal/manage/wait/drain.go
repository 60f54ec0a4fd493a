package caughtup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Drain waits until the named pipelines, or all, are drained.
type Drain struct {
	Pool  *pgxpool.Pool
	Names []string
	Once  bool // do not wait: report the current state
	// EndAlone ends the wait if something is left and no sidecar runs.
	EndAlone bool
	// Tell is called from time to time with the number of rows left; nil: no progress reports.
	Tell func(what string)
}

// Drained is the result of the drain of a pipeline.
type Drained struct {
	Pipeline  string  `json:"pipeline"`
	Result    string  `json:"result"` // drained; not_in_time; or the state that blocks it: paused, missing ...
	Rows      int64   `json:"rows_left"`
	Failed    int64   `json:"failed"`
	Cancelled int64   `json:"cancelled"`
	PutOff    int64   `json:"put_off"`
	Seconds   float64 `json:"elapsed_seconds"`
	Note      string  `json:"note,omitempty"` // anything else to know about the result

	left report.Left
}

// Run waits until nothing committed before the call is left to embed, until nothing of it makes progress, or until ctx
// ends. It also returns the list with an error: what is left.
func (d Drain) Run(ctx context.Context) ([]Drained, error) {
	found, err := lookup.Chosen(ctx, d.Pool, d.Names)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, tooLate(nil)
	case err != nil:
		return nil, err
	}
	ids := lists.Map(found, func(p pipeline.Pipeline) int32 { return p.ID })
	began := time.Now()
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	progress := d.progress()
	left, err := report.Drain(waiting, d.Pool, ids, func(left []report.Left) {
		progress(left)
		if d.EndAlone && alone(left) {
			end(errAlone)
		}
		if d.Once && (decoded(left) || time.Since(began) > report.Moment) {
			end(errOnce)
		}
	})
	late := err != nil && (errors.Is(err, errAlone) || errors.Is(err, errOnce) ||
		errors.Is(ctx.Err(), context.DeadlineExceeded))
	if err != nil && !late {
		return nil, err
	}
	took := time.Since(began).Seconds()
	list := lists.Map(left, func(l report.Left) Drained { return drained(&l, took) })
	if late {
		return list, tooLate(list)
	}
	return list, standing(list)
}

var (
	errAlone = errors.New("no sidecar runs")
	errOnce  = errors.New("nothing is waited for")
)

// decoded reports whether the streamer has read far enough for the remaining work to be known.
func decoded(left []report.Left) bool {
	return !slices.ContainsFunc(left, func(l report.Left) bool { return !l.Decoded })
}

// alone reports whether something is left that no sidecar processes.
func alone(left []report.Left) bool {
	return slices.ContainsFunc(left, func(l report.Left) bool { return !l.Drained() && !l.Sidecar })
}

// progress returns a function that reports what is left, after a few seconds and then from time to time.
func (d Drain) progress() func([]report.Left) {
	const first, longest = 3 * time.Second, 30 * time.Second
	if d.Tell == nil {
		return func([]report.Left) {}
	}
	pause, next, told := first, time.Now().Add(first), ""
	return func(left []report.Left) {
		if time.Now().Before(next) {
			return
		}
		pause = min(2*pause, longest)
		next = time.Now().Add(pause)
		var parts []string
		for i := range left {
			if !left[i].Drained() {
				parts = append(parts, left[i].Pipeline+": "+why(&left[i]))
			}
		}
		if now := strings.Join(parts, "; "); now != "" && now != told {
			d.Tell(now)
			told = now
		}
	}
}

// drained describes the state of a pipeline.
func drained(l *report.Left, seconds float64) Drained {
	one := Drained{
		Pipeline: l.Pipeline, Result: "drained", Rows: l.Rows, Failed: l.Failed, Cancelled: l.Cancelled, PutOff: l.PutOff,
		Seconds: seconds, left: *l,
	}
	switch {
	case l.Drained() && l.Resting != "":
		one.Note = "it is " + l.Resting + ": later changes wait"
	case l.Drained():
	case l.Stands():
		one.Result, one.Note = l.Resting, "it is "+l.Resting+": running rows are done, the others wait"
	default:
		one.Result, one.Note = "not_in_time", why(l)
	}
	return one
}

// why describes what is left of a pipeline, and what delays it.
func why(l *report.Left) string {
	parts := remains(l)
	if l.Resting != "" {
		parts = append(parts, "it is "+l.Resting)
	}
	if !l.Sidecar {
		parts = append(parts, "no sidecar runs")
	}
	return strings.Join(parts, ", ")
}

// remains describes what is left of a pipeline.
func remains(l *report.Left) []string {
	var parts []string
	if !l.Decoded {
		parts = append(parts, "the latest changes are not read yet")
	}
	if l.Rows > 0 {
		parts = append(parts, wording.Count(l.Rows, "row")+" left to embed")
	}
	if l.Scanning {
		parts = append(parts, "a scan is still running")
	}
	return parts
}

func tooLate(list []Drained) error {
	var parts []string
	hint := "embedsidecar status shows details"
	for i := range list {
		if one := &list[i]; one.Result != "drained" {
			parts = append(parts, one.Pipeline+": "+one.Note)
			if !one.left.Sidecar {
				hint = "start one: embedsidecar run"
			}
		}
	}
	if len(parts) == 0 { // the state was never read
		parts = append(parts, "what is left is unknown")
	}
	return problem.New(problem.Timeout, errors.New("not drained in time: "+strings.Join(parts, "; ")), hint)
}

// standing returns an error if something is left that waiting does not help, as wait does.
func standing(list []Drained) error {
	var parts, hints []string
	what := "drained, except for rows that waiting does not help: "
	for i := range list {
		one := &list[i]
		if one.Result != "drained" {
			what = "not drained, and waiting does not help: "
			parts = append(parts, fmt.Sprintf("%s is %s, with %s", one.Pipeline, one.Result,
				strings.Join(remains(&one.left), ", ")))
			hint := "embedsidecar check shows why it is " + one.Result
			if one.Result == "paused" {
				hint = "embedsidecar resume " + health.Argument(one.Pipeline) +
					" resumes it, or embedsidecar resume if all are paused"
			}
			hints = append(hints, hint)
		}
		words, ways := passed(" of "+one.Pipeline, one.Failed, one.Cancelled, one.PutOff)
		parts, hints = append(parts, words...), append(hints, ways...)
	}
	if len(parts) == 0 {
		return nil
	}
	slices.Sort(hints)
	return problem.New(problem.Failed, errors.New(what+strings.Join(parts, "; ")), slices.Compact(hints)...)
}
