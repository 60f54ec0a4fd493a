package admin

import (
	"context"
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Trial is the body of what takes nothing else. (Fields of types that are not exported would be no parameters.)
type Trial struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Change nothing, and tell what would be done"`
}

// ofPipeline is what is done to a pipeline as a whole.
type ofPipeline struct {
	Name string `path:"name"`
	Body *Trial `required:"false"`
}

// laneBody gives a pipeline a priority.
type laneBody struct {
	Trial
	Priority string `json:"priority" enum:"low,normal,high,urgent"`
}

// resumeBody lets a pipeline go on.
type resumeBody struct {
	Trial

	For string `json:"for,omitempty" doc:"Work at once and for so long, such as 2h, whatever the hours are; 0s ends that"`
}

// notifyBody turns notifications on or off.
type notifyBody struct {
	Trial

	On bool `json:"on"`
}

// reembedBody is about rows of a pipeline, or all of them.
type reembedBody struct {
	Trial
	Bounds
	Keys []string `json:"keys,omitempty" maxItems:"1000" doc:"Of rows; absent: all"`
}

// Bounds are those of what changes rows.
type Bounds struct {
	Limit     int64 `json:"limit,omitempty" minimum:"1" maximum:"100000" default:"10000" doc:"Rows at most"`
	Continues int64 `json:"continues,omitempty" minimum:"1" doc:"audit_id of an answer that left rows, to go on with it"`
}

// keysBody chooses rows of a pipeline by their keys.
type keysBody struct {
	Trial
	Bounds
	Pipeline string   `json:"pipeline"`
	Keys     []string `json:"keys,omitempty" maxItems:"1000" doc:"Of rows; absent, of requeue: all that are cancelled"`
}

// filterBody chooses rows.
type filterBody struct {
	Trial
	Bounds
	Pipelines []string `json:"pipelines,omitempty" maxItems:"100" doc:"Absent, of retry: all. With keys it is one"`
	Class     string   `json:"class,omitempty" doc:"Of the error"`
	Code      string   `json:"code,omitempty" doc:"Of the error"`
	Keys      []string `json:"keys,omitempty" maxItems:"1000" doc:"Of rows"`
	OlderThan string   `json:"older_than,omitempty" doc:"Since the change, such as 10m"`
}

// acts are the routes that change something.
func (a *api) acts() {
	s := a.service
	act := func(ctx context.Context, todo Action) (*body[Acted], error) { return answers(s.Act(ctx, todo)) }

	for verb, summary := range map[Verb]string{
		Pause: "Embed nothing of a pipeline until resume", BackfillNow: "Have every row looked at, and those embedded that have no vector of their text",
	} {
		on(a, gate.RoleOperator, http.MethodPost, base+"/pipelines/{name}/"+string(verb), string(verb), summary,
			func(ctx context.Context, in *ofPipeline) (*body[Acted], error) {
				return act(ctx, Action{Verb: verb, Pipelines: []string{in.Name}, DryRun: in.Body != nil && in.Body.DryRun})
			})
	}
	on(a, gate.RoleOperator, http.MethodPost, base+"/pipelines/{name}/resume", "resume", "Take back pause, or have a pipeline work for a time whatever its hours are",
		func(ctx context.Context, in *struct {
			Name string      `path:"name"`
			Body *resumeBody `required:"false"`
		},
		) (*body[Acted], error) {
			if in.Body == nil {
				in.Body = &resumeBody{}
			}
			todo := Action{Verb: Resume, Pipelines: []string{in.Name}, DryRun: in.Body.DryRun}
			if in.Body.For != "" {
				d, err := duration("body.for", in.Body.For)
				if err != nil {
					return nil, err
				}
				todo.For = &d
			}
			return act(ctx, todo)
		})
	for verb, summary := range map[Verb]string{
		Pause: "Turn the switch over all pipelines off", Resume: "Turn the switch over all pipelines on",
	} {
		on(a, gate.RoleOperator, http.MethodPost, base+"/"+string(verb), string(verb)+"-all", summary,
			func(ctx context.Context, in *struct {
				Body *Trial `required:"false"`
			},
			) (*body[Acted], error) {
				return act(ctx, Action{Verb: verb, DryRun: in.Body != nil && in.Body.DryRun})
			})
	}
	on(a, gate.RoleOperator, http.MethodPost, base+"/pipelines/{name}/priority", "priority", "Give a pipeline's live changes another priority",
		func(ctx context.Context, in *struct {
			Name string `path:"name"`
			Body laneBody
		},
		) (*body[Acted], error) {
			return act(ctx, Action{
				Verb: Priority, Pipelines: []string{in.Name}, Priority: in.Body.Priority, DryRun: in.Body.DryRun,
			})
		})
	on(a, gate.RoleOperator, http.MethodPost, base+"/pipelines/{name}/reembed", "reembed", "Have rows embedded anew though their texts are what they were",
		func(ctx context.Context, in *struct {
			Name string       `path:"name"`
			Body *reembedBody `required:"false"`
		},
		) (*body[Acted], error) {
			if in.Body == nil {
				in.Body = &reembedBody{}
			}
			return act(ctx, Action{
				Verb: Reembed, Pipelines: []string{in.Name}, Filter: report.TaskFilter{Keys: in.Body.Keys}, DryRun: in.Body.DryRun,
				Limit: in.Body.Limit, Continues: in.Body.Continues,
			})
		})
	a.rowActs(act)
	a.loads()
	on(a, gate.RoleOperator, http.MethodPost, base+"/notifications", "notify", "Turn notifications of what happens (LISTEN embedsidecar_changes) on or off",
		func(ctx context.Context, in *struct{ Body notifyBody }) (*body[Acted], error) {
			return answers(s.Notify(ctx, in.Body.On, in.Body.DryRun))
		})
	on(a, gate.RoleAdmin, http.MethodPost, base+"/plugins/reload", "reload-plugins", "Have every plugin start anew beside itself and take over, as SIGHUP does",
		func(ctx context.Context, _ *struct{}) (*body[reloadList], error) {
			list, err := s.Reload(ctx, "")
			return answers(reloadList{list}, err)
		})
	on(a, gate.RoleAdmin, http.MethodPost, base+"/plugins/{plugin}/reload", "reload-plugin", "Have a plugin start anew beside itself and take over",
		func(ctx context.Context, in *struct {
			Plugin string `path:"plugin"`
		},
		) (*body[reloadList], error) {
			list, err := s.Reload(ctx, in.Plugin)
			return answers(reloadList{list}, err)
		})
}

type reloadList struct {
	Plugins []control.Reloaded `json:"plugins"`
}

// rowActs change rows that are chosen.
func (a *api) rowActs(act func(ctx context.Context, todo Action) (*body[Acted], error)) {
	for verb, summary := range map[Verb]string{
		Retry:   "Try dead letters, and what waits for another try, again at once",
		Discard: "Put dead letters away, so that they count as cancelled",
	} {
		on(a, gate.RoleOperator, http.MethodPost, base+"/tasks/"+string(verb), string(verb), summary,
			func(ctx context.Context, in *struct{ Body filterBody }) (*body[Acted], error) {
				b := &in.Body
				older, err := duration("body.older_than", b.OlderThan)
				if err != nil {
					return nil, err
				}
				return act(ctx, Action{
					Verb: verb, Pipelines: b.Pipelines, DryRun: b.DryRun, Limit: b.Limit, Continues: b.Continues,
					Filter: report.TaskFilter{Class: b.Class, Code: b.Code, Keys: b.Keys, OlderThan: older},
				})
			})
	}
	on(a, gate.RoleOperator, http.MethodPost, base+"/tasks/prioritise", "prioritise", "Give rows that wait another priority, or all of a pipeline that do",
		func(ctx context.Context, in *struct{ Body waitingBody }) (*body[Acted], error) {
			b := &in.Body
			return act(ctx, Action{
				Verb: Prioritise, Pipelines: []string{b.Pipeline}, Priority: b.Priority, DryRun: b.DryRun, Limit: b.Limit,
				Continues: b.Continues, Filter: report.TaskFilter{Keys: b.Keys},
			})
		})
	for verb, summary := range map[Verb]string{
		Requeue: "Have rows looked at again, or all that were cancelled",
		Cancel:  "Take rows out of the queue",
	} {
		on(a, gate.RoleOperator, http.MethodPost, base+"/tasks/"+string(verb), string(verb), summary,
			func(ctx context.Context, in *struct{ Body keysBody }) (*body[Acted], error) {
				b := &in.Body
				return act(ctx, Action{
					Verb: verb, Pipelines: []string{b.Pipeline}, DryRun: b.DryRun, Limit: b.Limit, Continues: b.Continues,
					Filter: report.TaskFilter{Keys: b.Keys},
				})
			})
	}
}

// waitingBody is about rows of a pipeline that wait.
type waitingBody struct {
	Trial
	Bounds

	Pipeline string   `json:"pipeline"`
	Priority string   `json:"priority" enum:"low,normal,high,urgent"`
	Keys     []string `json:"keys,omitempty" maxItems:"1000" doc:"Of rows; absent: all that wait"`
}
