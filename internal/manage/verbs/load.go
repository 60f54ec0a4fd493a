package verbs

import (
	"context"
	"errors"
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

// BeginLoad pauses pipelines, or without names all of them by the switch. What was paused before is not part of the
// load. What it has paused it returns beside an error, too: that is to be ended.
func (a *Actor) BeginLoad(ctx context.Context, names []string, dry bool) (l Load, list []Outcome, err error) {
	list, err = a.Do(ctx, Pause, names, Request{DryRun: dry})
	for _, o := range list {
		if o.Result == "paused" {
			_, noted := a.pool.Exec(ctx, "SELECT embedsidecar.note_bulk(nullif($1, ''), $2)", o.Pipeline, a.by)
			err = errors.Join(err, refused(noted))
		}
		switch {
		case o.Result != "paused" && o.Result != "would_be_paused":
		case o.Pipeline == "":
			l.All = true
		default:
			l.Pipelines = append(l.Pipelines, o.Pipeline)
		}
	}
	return l, list, err
}

// EndLoad resumes what was paused for a load.
func (a *Actor) EndLoad(ctx context.Context, l Load, dry bool) ([]Outcome, error) {
	if l.Nothing() {
		return []Outcome{}, nil
	}
	return a.Do(ctx, Resume, l.Pipelines, Request{DryRun: dry})
}

// EndLoadAtLast is EndLoad though ctx is over. It tries again for a while where the database does not answer: a load
// may have ended with it.
func (a *Actor) EndLoadAtLast(ctx context.Context, l Load) error {
	const limit = time.Minute
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
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
