package admin

import (
	"cmp"
	"context"
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	actions "github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

// drainBody says how long is waited.
type drainBody struct {
	Timeout string `json:"timeout,omitempty" default:"5s" doc:"Up to 60s; 0s: look once, and wait for nothing"`
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
	actions.Load
}

// loads are what goes before and behind a bulk load.
func (a *api) loads() {
	s := a.service
	on(a, gate.RoleViewer, http.MethodPost, base+"/pipelines/{name}/drain", "drain", "Wait until nothing that was committed before is left to embed of a pipeline",
		func(ctx context.Context, in *struct {
			Name string     `path:"name"`
			Body *drainBody `required:"false"`
		},
		) (*body[Drained], error) {
			return a.drain(ctx, []string{in.Name}, in.Body)
		})
	on(a, gate.RoleViewer, http.MethodPost, base+"/drain", "drain-all", "Wait until nothing that was committed before is left to embed",
		func(ctx context.Context, in *struct {
			Body *drainBody `required:"false"`
		},
		) (*body[Drained], error) {
			return a.drain(ctx, nil, in.Body)
		})
	on(a, gate.RoleOperator, http.MethodPost, base+"/bulk/begin", "begin-bulk", "Drain pipelines and pause them, for a bulk load",
		func(ctx context.Context, in *struct {
			Body *loadBody `required:"false"`
		},
		) (*body[Load], error) {
			if in.Body == nil {
				in.Body = &loadBody{}
			}
			drain, err := duration("body.drain", cmp.Or(in.Body.Drain, usualDrain))
			if err != nil {
				return nil, err
			}
			return answers(s.BeginLoad(ctx, in.Body.Pipelines, drain, in.Body.DryRun))
		})
	on(a, gate.RoleOperator, http.MethodPost, base+"/bulk/end", "end-bulk", "Resume what was paused for a bulk load",
		func(ctx context.Context, in *struct{ Body loadedBody }) (*body[Acted], error) {
			return answers(s.EndLoad(ctx, in.Body.Load, in.Body.DryRun))
		})
}

// How long is waited where nobody says it.
const usualDrain, usualTimeout = "30s", "5s"

func (a *api) drain(ctx context.Context, pipelines []string, in *drainBody) (*body[Drained], error) {
	if in == nil {
		in = &drainBody{}
	}
	timeout, err := duration("body.timeout", cmp.Or(in.Timeout, usualTimeout))
	if err != nil {
		return nil, err
	}
	return answers(a.service.Drain(ctx, pipelines, timeout))
}
