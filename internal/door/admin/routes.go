package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

const (
	base        = "/api/v1"
	eventsPath  = base + "/events"
	sessionPath = base + "/session"
)

// routes adds every route. What one answers is a method of Service, which pages call as well.
func (a *api) routes() {
	a.sessions()
	a.looks()
	a.lists()
	a.rows()
	a.watches()
	a.searches()
	a.acts()
}

// Self is who one is.
type Self struct {
	Name      string   `json:"name"`
	Role      string   `json:"role"`
	Pipelines []string `json:"pipelines,omitempty" doc:"That the token is for; absent: all"`
	RowText   bool     `json:"row_text" doc:"Texts of rows are shown to him"`
	ReadOnly  bool     `json:"read_only" doc:"Nothing can be changed over this listener"`
}

type withCookie struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      Self
}

func (a *api) self(who Caller) Self {
	return Self{who.Name, who.Role, who.Pipelines, who.RowText, a.service.o.Config.Admin.ReadOnly}
}

// sessions are for browsers.
func (a *api) sessions() {
	on(a, serve.RoleViewer, http.MethodGet, sessionPath, "whoami", "Tell who one is",
		func(ctx context.Context, _ *struct{}) (*body[Self], error) {
			who, err := asked(ctx, serve.RoleViewer)
			return answers(a.self(who), err)
		})
	on(a, serve.RoleViewer, http.MethodPost, sessionPath, "open-session", "Begin a session: a cookie instead of the token",
		func(ctx context.Context, _ *struct{}) (*withCookie, error) {
			who, err := asked(ctx, serve.RoleViewer)
			if err == nil && who.session { // whoever has got hold of a cookie would have it for ever
				err = &Problem{
					Status: http.StatusForbidden, Reason: "session", Detail: "a session is begun with the token, not with another session",
				}
			}
			if err != nil {
				return nil, err
			}
			return &withCookie{*a.door.open(who), a.self(who)}, nil
		})
	on(a, serve.RoleViewer, http.MethodDelete, sessionPath, "end-session", "End the session",
		func(ctx context.Context, in *struct {
			Session string `cookie:"embedsidecar_session" hidden:"true"`
		},
		) (*withCookie, error) {
			who, err := asked(ctx, serve.RoleViewer)
			return &withCookie{*a.door.end(in.Session), a.self(who)}, err
		})
}

// looks tell of single things.
func (a *api) looks() {
	s := a.service
	on(a, serve.RoleViewer, http.MethodGet, base+"/status", "status", "Tell how things stand",
		func(ctx context.Context, _ *struct{}) (*body[Status], error) { return answers(s.Status(ctx)) })
	on(a, serve.RoleViewer, http.MethodGet, base+"/checks", "checks", "Look at everything that running depends on",
		func(ctx context.Context, _ *struct{}) (*body[checkList], error) {
			list, err := s.Checks(ctx)
			return answers(checkList{list}, err)
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/pipelines/{name}", "pipeline", "Tell how a pipeline stands",
		func(ctx context.Context, in *struct {
			Name string `path:"name"`
		},
		) (*body[observe.Pipeline], error) {
			return answers(s.Pipeline(ctx, in.Name))
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/pipelines/{name}/rows/{key}", "explain", "Tell a row's story",
		func(ctx context.Context, in *struct {
			Name string `path:"name"`
			Key  string `path:"key" doc:"As tasks shows it"`
			Text bool   `query:"text" doc:"With the text of the row, which not everybody may see"`
		},
		) (*body[explain.Story], error) {
			return answers(s.Explain(ctx, in.Name, in.Key, in.Text))
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/wait", "wait", "Wait until vectors have caught up with what is committed",
		func(ctx context.Context, in *struct {
			LSN     string `query:"lsn" doc:"Such as 0/16B3748; absent: all that is committed now"`
			Timeout string `query:"timeout" default:"5s" doc:"Up to 60s; 0s: look once, and wait for nothing"`
		},
		) (*body[Waited], error) {
			timeout, err := duration("query.timeout", in.Timeout)
			if err != nil {
				return nil, err
			}
			return answers(s.Wait(ctx, in.LSN, timeout))
		})
}

// OfPipelines are the parameters of what may be about some pipelines.
type OfPipelines struct {
	Pipelines []string `query:"pipeline,explode" doc:"Again for more; absent: all"`
}

// TaskParams are those of lists of tasks.
type TaskParams struct {
	OfPipelines

	Class     string   `query:"class" doc:"Of the error"`
	Code      string   `query:"code" doc:"Of the error"`
	Keys      []string `query:"key,explode" doc:"Of rows; again for more" maxItems:"100"`
	OlderThan string   `query:"older_than" doc:"Since the change, such as 10m"`
	Cursor    string   `query:"cursor" doc:"next of the page before"`
	Limit     int      `query:"limit" default:"100" minimum:"1" maximum:"1000"`
}

func (p *TaskParams) query(states []string) (TaskQuery, error) {
	older, err := duration("query.older_than", p.OlderThan)
	return TaskQuery{
		Pipelines: p.Pipelines, Cursor: p.Cursor, Limit: p.Limit,
		TaskFilter: report.TaskFilter{States: states, Class: p.Class, Code: p.Code, Keys: p.Keys, OlderThan: older},
	}, err
}

// duration reads one; "" is none.
func duration(location, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, wrong(location, "expected a duration such as 90s, 10m or 24h")
	}
	return d, nil
}

// Lists are objects, so that more can be told beside them.
type (
	checkList struct {
		Checks []Check `json:"checks"`
	}
	pipelineList struct {
		Pipelines []observe.Pipeline `json:"pipelines"`
	}
	slotList struct {
		Slots []report.Slot `json:"slots"`
	}
	errorList struct {
		Errors []report.ErrorGroup `json:"errors"`
	}
	settingList struct {
		Values []config.Shown `json:"values"`
	}
	backfillList struct {
		Backfills []Backfill `json:"backfills"`
	}
)

// lists tell of many things.
func (a *api) lists() {
	s := a.service
	on(a, serve.RoleViewer, http.MethodGet, base+"/pipelines", "pipelines", "List pipelines with where each stands",
		func(ctx context.Context, _ *struct{}) (*body[pipelineList], error) {
			now, err := s.Status(ctx)
			return answers(pipelineList{now.Pipelines}, err)
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/slots", "slots", "List replication slots",
		func(ctx context.Context, _ *struct{}) (*body[slotList], error) {
			now, err := s.Status(ctx)
			return answers(slotList{now.Slots}, err)
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/backfills", "backfills", "Tell how far comparisons of all rows are",
		func(ctx context.Context, _ *struct{}) (*body[backfillList], error) {
			list, err := s.Backfills(ctx)
			return answers(backfillList{list}, err)
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/tasks", "tasks", "List rows that wait, are in work, failed or were cancelled, the oldest first",
		func(ctx context.Context, in *struct {
			TaskParams
			States []string `query:"state,explode" enum:"todo,in_progress,stale,retrying,failed,cancelled"`
		},
		) (*body[TaskPage], error) {
			q, err := in.query(in.States)
			if err != nil {
				return nil, err
			}
			return answers(s.Tasks(ctx, q))
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/dead-letters", "dead-letters", "List rows that could not be embedded, the oldest first",
		func(ctx context.Context, in *TaskParams) (*body[TaskPage], error) {
			q, err := in.query([]string{"failed"})
			if err != nil {
				return nil, err
			}
			return answers(s.Tasks(ctx, q))
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/errors", "errors", "Tell what goes wrong, grouped",
		func(ctx context.Context, in *OfPipelines) (*body[errorList], error) {
			list, err := s.Errors(ctx, in.Pipelines)
			return answers(errorList{list}, err)
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/audit", "audit", "Tell who had what done, the newest first",
		func(ctx context.Context, in *struct {
			OfPipelines
			Cursor string `query:"cursor" doc:"next of the page before"`
			Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
		},
		) (*body[AuditPage], error) {
			return answers(s.Audit(ctx, in.Pipelines, in.Cursor, in.Limit))
		})
	on(a, serve.RoleViewer, http.MethodGet, base+"/plugins", "plugins", "List the plugins of this process, with their models and caches",
		func(ctx context.Context, _ *struct{}) (*body[control.State], error) { return answers(s.Plugins(ctx)) })
	on(a, serve.RoleAdmin, http.MethodGet, base+"/config", "config", "List the values of the configuration, without passwords",
		func(ctx context.Context, _ *struct{}) (*body[settingList], error) {
			list, err := s.Config(ctx)
			return answers(settingList{list}, err)
		})
}

// watches tell what happens as it happens.
func (a *api) watches() {
	on(a, serve.RoleViewer, http.MethodGet, eventsPath, "events", "Tell how things stand, at once and whenever that changes",
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: a.stream}, nil
		}, func(op *huma.Operation) {
			op.Responses["200"] = &huma.Response{
				Description: "Server-sent events: status, with what GET /api/v1/status answers, or problem",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
			}
		})
}

// stream sends events until somebody ends it.
func (a *api) stream(ctx huma.Context) {
	const sending = 10 * time.Second // for a slow client to take one
	_, w := humago.Unwrap(ctx)
	conn := http.NewResponseController(w)
	begun := false
	send := func(event string, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if !begun {
			w.Header().Set("Content-Type", "text/event-stream")
			begun = true
		}
		if err := conn.SetWriteDeadline(time.Now().Add(sending)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return conn.Flush()
	}
	err := a.service.Watch(ctx.Context(), func(now Status, err error) error {
		if err != nil {
			return send("problem", a.service.ProblemOf(ctx.Context(), err))
		}
		return send("status", now)
	})
	if err != nil && !begun {
		a.service.ProblemOf(ctx.Context(), err).write(w)
	}
}
