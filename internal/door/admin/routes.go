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
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

const (
	base        = "/api/v1"
	eventsPath  = base + "/events"
	sessionPath = base + "/session"
)

// routes adds every route. Each answers with a method of Service, which pages call as well.
func (a *api) routes() {
	a.sessions()
	a.databases()
	a.looks()
	a.lists()
	a.rows()
	a.watches()
	a.searches()
	a.indexes()
	a.acts()
	a.model()
}

// none is the input of a route without parameters.
type none = struct{}

// Self describes the caller.
type Self struct {
	Name      string   `json:"name"`
	Role      string   `json:"role"`
	Pipelines []string `json:"pipelines,omitempty" doc:"Pipelines that the token is limited to; absent: all"`
	RowText   bool     `json:"row_text" doc:"Whether the caller may see texts of rows"`
	ReadOnly  bool     `json:"read_only" doc:"Whether this listener rejects all changes"`
}

type withCookie struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      Self
}

func (a *api) self(ctx context.Context) (Self, error) {
	who, err := gate.Asked(ctx, gate.RoleViewer)
	return Self{who.Name, who.Role, who.Pipelines, who.RowText, a.service.ReadOnly()}, err
}

func (a *api) sessions() {
	get(a, "/session", "whoami", "Show the caller's name and rights", func(ctx context.Context, _ *none) (Self, error) { return a.self(ctx) })
	gate.On(a.API, gate.RoleViewer, http.MethodPost, sessionPath, "open-session", "Begin a session, with a cookie instead of the token",
		func(ctx context.Context, _ *none) (*withCookie, error) {
			cookie, err := gate.SignIn(ctx, "")
			if err != nil {
				return nil, err
			}
			who, err := a.self(ctx)
			return &withCookie{*cookie, who}, err
		})
	gate.On(a.API, gate.RoleViewer, http.MethodDelete, sessionPath, "end-session", "End the session",
		func(ctx context.Context, _ *none) (*withCookie, error) {
			who, err := a.self(ctx)
			return &withCookie{*gate.SignOut(ctx), who}, err
		})
}

// named is the input of a route about one pipeline.
type named struct {
	Name string `path:"name"`
}

// looks adds the routes about single things.
func (a *api) looks() {
	s := a.service
	get(a, "/status", "status", "Show the state of the installation",
		func(ctx context.Context, in *statusParams) (Status, error) {
			return s.StatusPage(ctx, in.Pipelines, in.Cursor, in.Limit)
		})
	get(a, "/checks", "checks", "Check everything that running depends on",
		func(ctx context.Context, _ *none) (checkList, error) {
			list, err := s.Checks(ctx)
			return checkList{list}, err
		})
	get(a, "/pipelines/{name}", "pipeline", "Show the state of a pipeline",
		func(ctx context.Context, in *named) (observe.Pipeline, error) { return s.Pipeline(ctx, in.Name) })
	type row struct {
		Name string `path:"name"`
		Key  string `path:"key" doc:"The key as shown by tasks"`
		Text bool   `query:"text" doc:"Include the text of the row, which needs the right to see it"`
	}
	get(a, "/pipelines/{name}/rows/{key}", "explain", "Explain the state of a row",
		func(ctx context.Context, in *row) (explain.Story, error) {
			return s.Explain(ctx, in.Name, in.Key, in.Text)
		})
	type wait struct {
		OfPipelines

		LSN     string `query:"lsn" doc:"Such as 0/16B3748; absent: everything committed now"`
		Timeout string `query:"timeout" default:"5s" doc:"Up to 60s; 0s: return the current state"`
	}
	get(a, "/wait", "wait", "Wait until vectors have caught up with the committed changes",
		func(ctx context.Context, in *wait) (Waited, error) {
			timeout, err := duration("query.timeout", in.Timeout)
			if err != nil {
				return Waited{}, err
			}
			return s.Wait(ctx, in.LSN, in.Pipelines, timeout)
		})
}

// OfPipelines are the parameters of a route that may be limited to some pipelines.
type OfPipelines struct {
	Pipelines []string `query:"pipeline,explode" doc:"A name, a pattern such as tenant_*.docs, or label:NAME=VALUE; repeatable; absent: all"`
}

// statusParams are the parameters of pages of pipelines, sorted by name.
type statusParams struct {
	OfPipelines

	Cursor string `query:"cursor" doc:"next of the previous page"`
	Limit  int    `query:"limit" default:"10" minimum:"1" maximum:"1000"`
}

// taskParams are the parameters of lists of tasks.
type taskParams struct {
	OfPipelines

	States    []string `query:"state,explode" enum:"todo,in_progress,stale,retrying,failed,cancelled,finished" doc:"Repeatable; finished cannot be combined with others"`
	Class     string   `query:"class" maxLength:"200" doc:"Of the error"`
	Code      string   `query:"code" maxLength:"200" doc:"Of the error"`
	Keys      []string `query:"key,explode" doc:"Keys of rows; repeatable" maxItems:"100"`
	OlderThan string   `query:"older_than" doc:"Minimum age of the change, such as 10m"`
	Cursor    string   `query:"cursor" doc:"next of the previous page"`
	Limit     int      `query:"limit" default:"100" minimum:"1" maximum:"1000"`
}

func (p *taskParams) page(ctx context.Context, s *Service) (TaskPage, error) {
	older, err := duration("query.older_than", p.OlderThan)
	if err != nil {
		return TaskPage{}, err
	}
	return s.Tasks(ctx, TaskQuery{
		Pipelines: p.Pipelines, Cursor: p.Cursor, Limit: p.Limit,
		TaskFilter: report.TaskFilter{States: p.States, Class: p.Class, Code: p.Code, Keys: p.Keys, OlderThan: older},
	})
}

// duration parses a duration; "" is 0.
func duration(location, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, gate.Wrong(location, "expected a duration such as 90s, 10m or 24h")
	}
	return d, nil
}

// Lists are objects, so that fields can be added.
type (
	checkList struct {
		Checks []check.Finding `json:"checks"`
	}
	pipelineList struct {
		Pipelines []observe.Pipeline `json:"pipelines"`
		Next      string             `json:"next,omitempty" doc:"The cursor of the next page; absent: last page"`
	}
	errorList struct {
		Errors []report.ErrorGroup `json:"errors"`
	}
	settingList struct {
		Values []config.Shown `json:"values"`
	}
)

func (a *api) lists() {
	s := a.service
	get(a, "/pipelines", "pipelines", "List pipelines with their states",
		func(ctx context.Context, in *statusParams) (pipelineList, error) {
			now, err := s.StatusPage(ctx, in.Pipelines, in.Cursor, in.Limit)
			return pipelineList{now.Pipelines, now.Next}, err
		})
	get(a, "/tasks", "tasks", "List rows that wait, are being embedded, failed or were cancelled, the oldest first; or finished tasks, the newest first",
		func(ctx context.Context, in *taskParams) (TaskPage, error) { return in.page(ctx, s) })
	get(a, "/errors", "errors", "List errors, grouped",
		func(ctx context.Context, in *OfPipelines) (errorList, error) {
			list, err := s.Errors(ctx, in.Pipelines)
			return errorList{list}, err
		})
	type history struct {
		OfPipelines
		Window string `query:"window" default:"1h" enum:"1h,24h,7d"`
	}
	get(a, "/history", "history", "Show the history of pipelines: rows, failures, tokens, price, backlog and freshness",
		func(ctx context.Context, in *history) (report.Past, error) {
			return s.History(ctx, in.Window, in.Pipelines)
		})
	type audit struct {
		OfPipelines
		Cursor string `query:"cursor" doc:"next of the previous page"`
		Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	}
	get(a, "/audit", "audit", "List the audited actions, the newest first",
		func(ctx context.Context, in *audit) (AuditPage, error) {
			return s.Audit(ctx, in.Pipelines, in.Cursor, in.Limit)
		})
	get(a, "/plugins", "plugins", "List the plugins of this process, with their models and caches",
		func(ctx context.Context, _ *none) (control.State, error) { return s.Plugins(ctx) })
	gate.Get(a.API, gate.RoleAdmin, http.MethodGet, base+"/config", "config",
		"List the values of the configuration, without passwords",
		func(ctx context.Context, _ *none) (settingList, error) {
			list, err := s.Config(ctx)
			return settingList{list}, err
		})
}

// watches adds the route of events.
func (a *api) watches() {
	gate.On(a.API, gate.RoleViewer, http.MethodGet, eventsPath, "events", "Send the state of the installation, at once and after each change",
		func(context.Context, *none) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: a.stream}, nil
		}, func(op *huma.Operation) {
			op.Responses["200"] = &huma.Response{
				Description: "Server-sent events: status, with what GET /api/v1/status answers, or problem",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
			}
		})
}

// stream sends events until the client or the listener ends it.
func (a *api) stream(ctx huma.Context) {
	const sending = 10 * time.Second // for a slow client to read an event
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
		a.Write(ctx.Context(), w, err)
	}
}

// databases adds the route that only a Service with several databases has.
func (a *api) databases() {
	get(a, "/databases", "databases", "List the databases, if there are several; ?database=NAME on other paths selects one",
		func(ctx context.Context, _ *none) (databaseList, error) {
			list, err := a.service.Databases(ctx)
			return databaseList{list}, err
		})
}

// api is the API under construction.
type api struct {
	*gate.API

	service *Service
}

// get adds a route that every role may use.
func get[I, O any](a *api, path, id, summary string, answer func(ctx context.Context, in *I) (O, error)) {
	gate.Get(a.API, gate.RoleViewer, http.MethodGet, base+path, id, summary, answer)
}

// post adds a route of an action, for a role.
func post[I, O any](a *api, role, path, id, summary string, answer func(ctx context.Context, in *I) (O, error),
	more ...func(*huma.Operation),
) {
	gate.Get(a.API, role, http.MethodPost, base+path, id, summary, answer, more...)
}

// of is the input of a route about one pipeline with an optional body, and all that of a route without a pipeline.
type (
	of[T any] struct {
		Name string `path:"name"`
		Body *T     `required:"false"`
	}
	all[T any] struct {
		Body *T `required:"false"`
	}
)
