package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	actions "github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
)

// Drained is how far a drain came, when nothing is left or the time is over.
type Drained struct {
	Yes       bool               `json:"drained" doc:"Nothing is left to embed of what was committed before"`
	Pipelines []caughtup.Drained `json:"pipelines"`
	// what is left, or was not waited for because that does not help
	Why   string   `json:"why,omitempty"`
	Hints []string `json:"hints,omitempty"`
}

// Drain waits until nothing that was committed before is left to embed of pipelines, without names of all that the
// caller sees. That something is left is an answer, and no error. It changes nothing.
func (s *Service) Drain(ctx context.Context, pipelines []string, timeout time.Duration) (Drained, error) {
	d := Drained{Pipelines: []caughtup.Drained{}}
	_, pool, names, err := s.meant(ctx, gate.RoleViewer, pipelines)
	if err != nil {
		return d, err
	}
	if timeout > longestWait {
		return d, gate.Wrong("body.timeout", "up to 60s can be waited for in one request")
	}
	if len(names) == 0 { // none is his to see: all would be those of others
		d.Yes = true
		return d, nil
	}
	end, err := s.mayWait()
	if err != nil {
		return d, err
	}
	defer end()
	return s.drained(ctx, caughtup.Drain{Pool: pool, Names: names}, timeout)
}

// drained runs a drain.
func (s *Service) drained(ctx context.Context, drain caughtup.Drain, timeout time.Duration) (d Drained, err error) {
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

	Drained *Drained `json:"drained,omitempty" doc:"How far it came before; what is left waits until the load is over"`
	// absent: it was paused before, and stays so
	End *actions.Load `json:"end,omitempty" doc:"What was paused, and is to be resumed: the body for /bulk/end"`
}

// BeginLoad drains pipelines for a while, and pauses them for a bulk load: without names all, by the switch. A dry run
// does neither.
func (s *Service) BeginLoad(ctx context.Context, pipelines []string, drain time.Duration, dry bool) (Load, error) {
	begun := Load{Acted: Acted{DryRun: dry, Outcomes: []Outcome{}}}
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, pipelines)
	switch {
	case err != nil:
		return begun, err
	case len(pipelines) == 0 && len(who.Pipelines) > 0:
		return begun, gate.Wrong("body.pipelines", "name the pipelines: this token is for some")
	case drain > longestWait:
		return begun, gate.Wrong("body.drain", "up to 60s can be waited for in one request")
	}
	if err := s.mayChange(dry); err != nil {
		return begun, err
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
	load, list, err := by.BeginLoad(ctx, names, dry)
	begun.add(list)
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
func (s *Service) EndLoad(ctx context.Context, load actions.Load, dry bool) (Acted, error) {
	ended := Acted{DryRun: dry, Outcomes: []Outcome{}}
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, load.Pipelines)
	switch {
	case err != nil:
		return ended, err
	case load.All == (len(load.Pipelines) > 0):
		return ended, gate.Wrong("body", "give what /bulk/begin answered as end: pipelines, or all")
	case load.All && len(who.Pipelines) > 0:
		return ended, gate.Wrong("body.all", "this token is for some pipelines")
	}
	if err := s.mayChange(dry); err != nil {
		return ended, err
	}
	if !load.All {
		load.Pipelines = names
	}
	done, err := s.loader(who, pool).EndLoad(ctx, load, dry)
	ended.add(done.Outcomes)
	ended.Stay = done.Paused
	return ended, err
}

// loader acts for somebody's bulk load, and says so in the audit as embedsidecar bulk does.
func (*Service) loader(who gate.Caller, pool *pgxpool.Pool) *actions.Actions {
	return actions.New(pool, who.SaidBy()+" by bulk")
}

// Notify turns notifications of what happens on or off.
func (s *Service) Notify(ctx context.Context, on, dry bool) (Acted, error) {
	done := Acted{DryRun: dry, Outcomes: []Outcome{}}
	who, err := gate.Wholly(ctx, gate.RoleOperator)
	if err == nil {
		err = s.mayChange(dry)
	}
	if err != nil {
		return done, err
	}
	pool, err := s.database()
	if err != nil {
		return done, err
	}
	o, err := actions.New(pool, who.SaidBy()).Notify(ctx, on, dry)
	if err == nil {
		done.add([]actions.Outcome{o})
	}
	return done, err
}
