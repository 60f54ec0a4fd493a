package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Limits of waits for vectors.
const (
	longestWait = time.Minute
	maxWaits    = 32 // at a time
)

// Waited is the state of the vectors after a wait.
type Waited struct {
	LSN string `json:"lsn,omitempty" doc:"Absent if pipelines were named"`
	Yes bool   `json:"caught_up"`
	// what is left, or was not waited for because waiting does not help
	Why   string   `json:"why,omitempty"`
	Hints []string `json:"hints,omitempty"`

	Left      *report.CaughtUp   `json:"left,omitempty" doc:"Remaining work in numbers; only for tokens for all pipelines"`
	Pipelines []caughtup.Drained `json:"pipelines,omitempty" doc:"State of each named pipeline"`
}

// Wait waits until the vectors of all pipelines of this sidecar's slot have caught up with an LSN, or without one with
// everything committed before the call. With names, it waits until nothing committed before is left to embed of these
// pipelines. A timeout is an answer, not an error.
func (s *Service) Wait(ctx context.Context, text string, pipelines []string, timeout time.Duration) (Waited, error) {
	who, pool, names, err := s.chosen(ctx, pipelines)
	switch {
	case err != nil:
		return Waited{}, err
	case timeout > longestWait:
		return Waited{}, gate.Wrong("query.timeout", "the maximum per request is 60s")
	case len(pipelines) > 0 && text != "":
		return Waited{}, gate.Wrong("query.lsn", "give an LSN, or pipelines")
	case len(pipelines) > 0:
		end, err := s.mayWait()
		if err != nil {
			return Waited{}, err
		}
		defer end()
		return s.drained(ctx, caughtup.Drain{Pool: pool, Names: names}, timeout)
	}
	var lsn pglogrepl.LSN
	if text == "" {
		lsn, err = report.Now(ctx, pool)
	} else if lsn, err = caughtup.ParseLSN(text); err != nil {
		return Waited{}, gate.Wrong("query.lsn", err.Error())
	}
	if err != nil {
		return Waited{}, err
	}
	end, err := s.mayWait()
	if err != nil {
		return Waited{}, err
	}
	defer end()
	waiting, cancel := within(ctx, timeout)
	defer cancel()
	answer, err := caughtup.Wait{
		Pool: pool, Slot: s.config().Slot.Name, LSN: lsn, Once: timeout == 0, Redact: s.o.Redact,
	}.Run(waiting)
	// Only resting pipelines that the caller sees count.
	resting := slices.DeleteFunc(slices.Clone(answer.Resting), func(name string) bool { return !who.Sees(name) })
	w := Waited{LSN: answer.LSN, Yes: answer.CaughtUp.Yes() && len(resting) == 0, Left: &answer.CaughtUp}
	if w.Why, w.Hints, err = s.why(ctx, err); err != nil {
		return w, err
	}
	if len(who.Pipelines) > 0 { // the rest also concerns pipelines that the caller may not see
		w.Why, w.Hints, w.Left = "", nil, nil
		if len(resting) > 0 {
			w.Why = "inactive: " + strings.Join(resting, ", ")
		}
	}
	return w, nil
}

// drained waits until nothing committed before is left to embed of pipelines. If something is left, that is an answer,
// not an error.
func (s *Service) drained(ctx context.Context, drain caughtup.Drain, timeout time.Duration) (d Waited, err error) {
	waiting, cancel := within(ctx, timeout)
	defer cancel()
	drain.Once = timeout == 0
	list, err := drain.Run(waiting)
	d.Pipelines, d.Yes = append([]caughtup.Drained{}, list...), err == nil
	if err != nil {
		d.Yes = len(list) > 0 && !slices.ContainsFunc(list, func(l caughtup.Drained) bool { return l.Result != "drained" })
	}
	d.Why, d.Hints, err = s.why(ctx, err)
	return d, err
}

// mayWait takes one of the slots for waits. The returned function gives it back.
func (s *Service) mayWait() (end func(), err error) {
	select {
	case s.waits <- struct{}{}:
		return s.waits.giveBack, nil
	default:
		return nil, gate.Refuse(http.StatusServiceUnavailable, "overloaded", "too many requests wait").After(time.Second)
	}
}

// why describes what was not waited for, or not long enough, with hints. It returns any other error.
func (s *Service) why(ctx context.Context, err error) (why string, hints []string, other error) {
	if err == nil || ctx.Err() != nil || problem.Of(err) != problem.Timeout && problem.Of(err) != problem.Failed {
		return "", nil, err
	}
	for _, hint := range problem.Hints(err) {
		hints = append(hints, s.o.Redact(hint))
	}
	return s.o.Redact(err.Error()), hints, nil
}

// within limits a wait; a timeout of 0 means a single check without a limit.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
