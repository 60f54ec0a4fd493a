package admin

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

// drained waits until nothing that was committed before is left to embed of pipelines. That something is left is an
// answer, and no error.
func (s *Service) drained(ctx context.Context, drain caughtup.Drain, timeout time.Duration) (d Waited, err error) {
	waiting, cancel := within(ctx, timeout)
	defer cancel()
	drain.Once = timeout == 0
	list, err := drain.Run(waiting)
	d.Pipelines, d.Yes = append([]caughtup.Drained{}, list...), err == nil
	switch {
	case err == nil:
	case ctx.Err() == nil && (problem.Of(err) == problem.Timeout || problem.Of(err) == problem.Failed):
		d.Why, d.Hints = s.why(err)
		d.Yes = len(list) > 0
		for i := range list {
			d.Yes = d.Yes && list[i].Result == "drained"
		}
	default:
		return d, err
	}
	return d, nil
}

// mayWait takes a place among those who wait. The function that it returns gives it back.
func (s *Service) mayWait() (end func(), err error) {
	select {
	case s.waits <- struct{}{}:
		return s.waits.giveBack, nil
	default:
		return nil, gate.Refuse(http.StatusServiceUnavailable, "overloaded", "too many wait already").After(time.Second)
	}
}

// why words what was not waited for, or not long enough, with the ways out.
func (s *Service) why(err error) (why string, hints []string) {
	for _, hint := range problem.Hints(err) {
		hints = append(hints, s.o.Redact(hint))
	}
	return s.o.Redact(err.Error()), hints
}

// Load is what became of the begin of a bulk load.
type Load struct {
	Acted

	Drained *Waited `json:"drained,omitempty" doc:"How far it came before; what is left waits until the load is over"`
	// absent: it was paused before, and stays so
	End *verbs.Load `json:"end,omitempty" doc:"What was paused, and is to be resumed: the body for /bulk/end"`
}

// BeginLoad drains pipelines for a while, and pauses them for a bulk load: without names all, by the switch. A dry run
// does neither.
func (s *Service) BeginLoad(ctx context.Context, pipelines []string, drain time.Duration, dry bool) (Load, error) {
	defer s.forget()
	begun := Load{Acted: Acted{DryRun: dry, Outcomes: []verbs.Outcome{}}}
	who, pool, names, err := s.mayAct(ctx, pipelines, false, dry)
	switch {
	case err != nil:
		return begun, err
	case drain > longestWait:
		return begun, gate.Wrong("body.drain", "up to 60s can be waited for in one request")
	}
	if drain > 0 && !dry {
		end, err := s.mayWait()
		if err != nil {
			return begun, err
		}
		defer end()
		d, err := s.drained(ctx, caughtup.Drain{Pool: pool, Names: names, EndAlone: true}, drain)
		if err != nil {
			return begun, err
		}
		begun.Drained = &d
	}
	if len(pipelines) == 0 {
		names = nil
	}
	by := s.loader(who, pool)
	var load verbs.Load
	load, begun.Outcomes, err = by.BeginLoad(ctx, names, dry)
	if err != nil { // nobody is told what to end
		_, _ = by.EndLoad(context.WithoutCancel(ctx), load, dry) // the first error tells more
		return begun, err
	}
	if !load.Nothing() {
		begun.End = &load
	}
	return begun, nil
}

// EndLoad lets go on what was paused for a bulk load.
func (s *Service) EndLoad(ctx context.Context, load verbs.Load, dry bool) (Acted, error) {
	defer s.forget()
	ended := Acted{DryRun: dry, Outcomes: []verbs.Outcome{}}
	who, pool, names, err := s.mayAct(ctx, load.Pipelines, false, dry)
	if err == nil && load.All == (len(load.Pipelines) > 0) {
		err = gate.Wrong("body", "give what /bulk/begin answered as end: pipelines, or all")
	}
	if err != nil {
		return ended, err
	}
	if !load.All {
		load.Pipelines = names
	}
	ended.Outcomes, err = s.loader(who, pool).EndLoad(ctx, load, dry)
	return ended, err
}

// loader acts for somebody's bulk load, and says so in the audit as embedsidecar bulk does.
func (*Service) loader(who gate.Caller, pool *pgxpool.Pool) *verbs.Actor {
	return verbs.New(pool, who.SaidBy()+" by bulk")
}

// loadBody begins a bulk load.
type loadBody struct {
	Trial

	Pipelines []string `json:"pipelines,omitempty" maxItems:"1000" doc:"Absent: all, by the switch over them"`
	Drain     string   `json:"drain,omitempty" default:"30s" doc:"How long what is queued may take to be embedded before, up to 60s; 0s: not at all"`
}

// loadedBody ends one.
type loadedBody struct {
	Trial
	verbs.Load
}

// loads are what goes before and behind a bulk load.
func (a *api) loads() {
	s := a.service
	post(a, gate.RoleOperator, "/bulk/begin", "begin-bulk", "Drain pipelines and pause them, for a bulk load",
		func(ctx context.Context, in *all[loadBody]) (Load, error) {
			b := cmp.Or(in.Body, &loadBody{})
			drain, err := duration("body.drain", cmp.Or(b.Drain, "30s"))
			if err != nil {
				return Load{}, err
			}
			return s.BeginLoad(ctx, b.Pipelines, drain, b.DryRun)
		})
	post(a, gate.RoleOperator, "/bulk/end", "end-bulk", "Resume what was paused for a bulk load",
		func(ctx context.Context, in *struct{ Body loadedBody }) (Acted, error) {
			return s.EndLoad(ctx, in.Body.Load, in.Body.DryRun)
		})
}
