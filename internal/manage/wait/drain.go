package caughtup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Drain is what is drained: pipelines by their names, or all.
type Drain struct {
	Pool  *pgxpool.Pool
	Names []string
	Once  bool // nothing is waited for: how far they are now is the answer
	// EndAlone ends it where something is left and no sidecar runs.
	EndAlone bool
	// Tell is told from time to time how many rows are left; nil: nobody wants to know.
	Tell func(what string)
}

// Drained is how far the drain of a pipeline came.
type Drained struct {
	Pipeline  string  `json:"pipeline"`
	Result    string  `json:"result"` // drained; paused, missing ...: it rests with rows left; not_in_time
	Rows      int64   `json:"rows_left"`
	Failed    int64   `json:"failed"`
	Cancelled int64   `json:"cancelled"`
	PutOff    int64   `json:"put_off"`
	Seconds   float64 `json:"elapsed_seconds"`
	Note      string  `json:"note,omitempty"` // what else is to be known of it

	left report.Left
}

// Run waits until nothing that was committed before is left to embed, or nothing of it moves, or ctx ends. The answer
// comes beside an error, too: of what is left.
func (d Drain) Run(ctx context.Context) ([]Drained, error) {
	found, err := lookup.Chosen(ctx, d.Pool, d.Names)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, tooLate(nil)
	case err != nil:
		return nil, err
	}
	ids := make([]int32, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
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
	list := make([]Drained, len(left))
	for i := range left {
		list[i] = drained(&left[i], took)
	}
	if late {
		return list, tooLate(list)
	}
	return list, standing(list)
}

var (
	errAlone = errors.New("no sidecar runs")
	errOnce  = errors.New("nothing is waited for")
)

// decoded reports whether the streamer is as far as it has to be: what is left is known then.
func decoded(left []report.Left) bool {
	return !slices.ContainsFunc(left, func(l report.Left) bool { return !l.Decoded })
}

// alone reports whether something is left that no sidecar works on.
func alone(left []report.Left) bool {
	return slices.ContainsFunc(left, func(l report.Left) bool { return !l.Drained() && !l.Sidecar })
}

// progress tells what is left, after a few seconds and then from time to time.
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

// drained words how far a pipeline is.
func drained(l *report.Left, seconds float64) Drained {
	one := Drained{
		Pipeline: l.Pipeline, Result: "drained", Rows: l.Rows, Failed: l.Failed, Cancelled: l.Cancelled, PutOff: l.PutOff,
		Seconds: seconds, left: *l,
	}
	switch {
	case l.Drained() && l.Resting != "":
		one.Note = "it is " + l.Resting + ": what changes from now on waits"
	case l.Drained():
	case l.Stands():
		one.Result, one.Note = l.Resting, "it is "+l.Resting+": what was in work is done, the rest waits"
	default:
		one.Result, one.Note = "not_in_time", why(l)
	}
	return one
}

// why words what is left of a pipeline, and what keeps it.
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

// remains words what is left of a pipeline.
func remains(l *report.Left) []string {
	var parts []string
	if !l.Decoded {
		parts = append(parts, "the latest changes are not read yet")
	}
	if l.Rows > 0 {
		parts = append(parts, wording.Count(l.Rows, "row")+" left to embed")
	}
	if l.Scanning {
		parts = append(parts, "a scan is not over")
	}
	return parts
}

func tooLate(list []Drained) error {
	var parts []string
	hint := "embedsidecar status tells more"
	for i := range list {
		if one := &list[i]; one.Result != "drained" {
			parts = append(parts, one.Pipeline+": "+one.Note)
			if !one.left.Sidecar {
				hint = "start one: embedsidecar run"
			}
		}
	}
	if len(parts) == 0 { // it had not been asked once
		parts = append(parts, "what is left is unknown")
	}
	return problem.New(problem.Timeout, errors.New("not drained in time: "+strings.Join(parts, "; ")), hint)
}

// standing is an error if something is left that waiting does not help, as with wait.
func standing(list []Drained) error {
	var parts, hints []string
	what := "drained, but for what waiting does not help: "
	for i := range list {
		one := &list[i]
		if one.Result != "drained" {
			what = "not drained, and waiting does not help: "
			parts = append(parts, fmt.Sprintf("%s is %s, with %s", one.Pipeline, one.Result,
				strings.Join(remains(&one.left), ", ")))
			hint := "embedsidecar check tells why it is " + one.Result
			if one.Result == "paused" {
				hint = "embedsidecar resume " + health.Argument(one.Pipeline) +
					" lets it go on, or embedsidecar resume where all are paused"
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
