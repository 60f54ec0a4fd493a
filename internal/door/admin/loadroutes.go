package admin

import (
	"cmp"
	"context"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

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
