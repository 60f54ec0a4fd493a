package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/requests"
)

// Declare requests that a pipeline is created, changed or dropped, or a plan of that, and waits for the result for a
// while.
func (s *Service) Declare(ctx context.Context, action, pipeline string, definition map[string]any, dry bool,
	wait time.Duration,
) (requests.Request, error) {
	who, pool, err := s.whole(ctx, gate.RoleAdmin)
	if err == nil {
		err = s.writable(dry)
	}
	if err != nil {
		return requests.Request{}, err
	}
	id, err := requests.Ask(ctx, pool, action, pipeline, definition, who.SaidBy(), dry)
	s.o.Log.InfoContext(ctx, "administrator acted", "by", who.SaidBy(), "action", action+" pipeline", "pipeline", pipeline,
		"dry_run", dry, "refused", err != nil)
	if err != nil {
		return requests.Request{}, err
	}
	return requests.Wait(ctx, pool, id, wait)
}

// Requests returns the newest requests for pipelines.
func (s *Service) Requests(ctx context.Context) ([]requests.Request, error) {
	_, pool, err := s.whole(ctx, gate.RoleAdmin)
	if err != nil {
		return nil, err
	}
	list, err := requests.List(ctx, pool, usualPage)
	return append([]requests.Request{}, list...), err
}

// Request returns a request for a pipeline.
func (s *Service) Request(ctx context.Context, id int64) (requests.Request, error) {
	_, pool, err := s.whole(ctx, gate.RoleAdmin)
	if err != nil {
		return requests.Request{}, err
	}
	return requests.Read(ctx, pool, id)
}

type declared struct {
	Status   int
	Location string `header:"Location" doc:"URL of the request's state"`
	Body     requests.Request
}

type requestList struct {
	Requests []requests.Request `json:"requests" doc:"The newest 100"`
}

// Waits are the parameters of a request's wait.
type Waits struct {
	Wait   string `query:"wait" default:"10s" doc:"How long to wait for the result, up to 60s"`
	DryRun bool   `query:"dry_run" doc:"Change nothing, and report what would be done"`
}

// declares adds the routes about pipelines that no file declares.
func (a *api) declares() {
	s := a.service
	declare := func(ctx context.Context, action, name string, definition map[string]any, in Waits) (*declared, error) {
		wait, err := duration("query.wait", in.Wait)
		if err != nil {
			return nil, err
		}
		r, err := s.Declare(ctx, action, name, definition, in.DryRun, min(wait, time.Minute))
		if err != nil {
			return nil, err
		}
		if r.State == requests.Refused {
			return nil, gate.Refuse(http.StatusUnprocessableEntity, "refused", r.Reason, r.Hints...)
		}
		answer := &declared{Status: http.StatusOK, Location: fmt.Sprintf("%s%s/requests/%d", s.config().Admin.BasePath, base, r.ID), Body: r}
		if !r.Ended() {
			answer.Status = http.StatusAccepted
		}
		return answer, nil
	}
	gate.On(a.API, gate.RoleAdmin, http.MethodPost, base+"/pipelines", "create-pipeline",
		"Create a pipeline, with the same keys as in the file", func(ctx context.Context, in *struct {
			Waits

			Body map[string]any
		},
		) (*declared, error) {
			return declare(ctx, "create", "", in.Body, in.Waits)
		})
	gate.On(a.API, gate.RoleAdmin, http.MethodPatch, base+"/pipelines/{name}", "change-pipeline",
		"Change keys of a pipeline that was created by SQL or HTTP; null removes one", func(ctx context.Context, in *struct {
			Waits

			Name string `path:"name"`
			Body map[string]any
		},
		) (*declared, error) {
			return declare(ctx, "change", in.Name, in.Body, in.Waits)
		})
	gate.On(a.API, gate.RoleAdmin, http.MethodDelete, base+"/pipelines/{name}", "drop-pipeline",
		"Remove a pipeline that was created by SQL or HTTP; its vectors remain", func(ctx context.Context, in *struct {
			Waits

			Name string `path:"name"`
		},
		) (*declared, error) {
			return declare(ctx, "drop", in.Name, nil, in.Waits)
		})
	gate.Get(a.API, gate.RoleAdmin, http.MethodGet, base+"/requests", "requests", "List requests for pipelines, the newest first",
		func(ctx context.Context, _ *none) (requestList, error) {
			list, err := s.Requests(ctx)
			return requestList{list}, err
		})
	gate.Get(a.API, gate.RoleAdmin, http.MethodGet, base+"/requests/{id}", "request", "Show the state of a request for a pipeline",
		func(ctx context.Context, in *struct {
			ID int64 `path:"id"`
		},
		) (requests.Request, error) {
			return s.Request(ctx, in.ID)
		})
}
