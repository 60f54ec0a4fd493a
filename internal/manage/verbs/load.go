package actions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Load is a bulk load under way: what was paused for it, and is resumed when it is over.
type Load struct {
	All       bool     `json:"all,omitempty" doc:"The switch over all pipelines"`
	Pipelines []string `json:"pipelines,omitempty" doc:"These, by their names"`
}

// Nothing reports whether nothing was paused for it: it was paused before.
func (l *Load) Nothing() bool { return !l.All && len(l.Pipelines) == 0 }

// BeginLoad pauses pipelines one by one, so that it is known of each whether it was paused before, or without names
// all of them by the switch. What it has paused it returns beside an error, too: that is to be ended.
func (a *Actions) BeginLoad(ctx context.Context, names []string, dry bool) (l Load, list []Outcome, err error) {
	list = []Outcome{}
	paused := func(o Outcome) bool { return o.Result == "paused" || o.Result == "would_be_paused" }
	if len(names) == 0 {
		s, err := a.Switch(ctx, false, nil, dry)
		if err != nil {
			return l, list, err
		}
		l.All = paused(s.Outcomes[0])
		return l, s.Outcomes, nil
	}
	for _, name := range names {
		s, err := a.Switch(ctx, false, []string{name}, dry)
		if err != nil {
			return l, list, err
		}
		o := s.Outcomes[0]
		if list = append(list, o); paused(o) {
			l.Pipelines = append(l.Pipelines, o.Pipeline)
		}
	}
	return l, list, nil
}

// EndLoad lets go on what was paused for a load.
func (a *Actions) EndLoad(ctx context.Context, l Load, dry bool) (Switched, error) {
	if l.Nothing() {
		return Switched{Outcomes: []Outcome{}}, nil
	}
	return a.Switch(ctx, true, l.Pipelines, dry)
}

// EndLoadAtLast is EndLoad though ctx be over. It goes on trying for a while where the database is not there: a load
// may have ended with it.
func (a *Actions) EndLoadAtLast(ctx context.Context, l Load) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		_, err := a.EndLoad(ctx, l, false)
		if err == nil {
			return nil
		}
		if problem.Of(err) != problem.Connect || !sleep.For(ctx, pause) {
			way := []string{"embedsidecar resume"}
			for _, name := range l.Pipelines {
				way = append(way, health.Quoted(name))
			}
			return problem.New(problem.Of(err), fmt.Errorf("still paused: %w", err), strings.Join(way, " "))
		}
	}
}
