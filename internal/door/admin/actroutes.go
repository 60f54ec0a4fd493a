package admin

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// Trial is the body of what takes nothing else. (Fields of types that are not exported would be no parameters.)
type Trial struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Change nothing, and tell what would be done"`
}

// actBody is what verbs take; each has those of the fields that are its own.
type actBody struct {
	Trial

	Pipelines []string  `json:"pipelines,omitempty" maxItems:"100" doc:"Absent: all, where the verb takes that; with keys it is one"`
	Keys      []string  `json:"keys,omitempty" maxItems:"1000" doc:"Of rows; absent: all that it is about"`
	Class     string    `json:"class,omitempty" maxLength:"200" doc:"Of the error"`
	Code      string    `json:"code,omitempty" maxLength:"200" doc:"Of the error"`
	OlderThan string    `json:"older_than,omitempty" doc:"Since the change, such as 10m"`
	Priority  string    `json:"priority" enum:"low,normal,high,urgent"`
	For       string    `json:"for,omitempty" doc:"Work at once and for so long, such as 2h, whatever the hours are; 0s ends that"`
	On        bool      `json:"on"`
	At        time.Time `json:"at,omitzero" doc:"The rows wait until then; absent: not at all"`
	Limit     int64     `json:"limit,omitempty" minimum:"1" maximum:"100000" default:"10000" doc:"Rows at most"`
	Continues int64     `json:"continues,omitempty" minimum:"1" doc:"audit_id of an answer that left rows, to go on with it"`
}

// acts are the routes that change something: those of a verb follow from its row.
func (a *api) acts() {
	for _, v := range verbs.All {
		if v.Group == "" && v.Scope != verbs.Program {
			post(a, gate.RoleOperator, "/pipelines/{name}/"+v.Name, v.Name, v.Usage,
				func(ctx context.Context, in *of[actBody]) (Acted, error) {
					return a.act(ctx, v, []string{in.Name}, in.Body)
				}, a.takes(v, false))
		}
		if v.Group != "" || v.OfAll() {
			post(a, gate.RoleOperator, strings.TrimSuffix("/"+v.Group, "/")+"/"+v.Name, v.Name+"-all", v.Usage,
				func(ctx context.Context, in *all[actBody]) (Acted, error) { return a.act(ctx, v, nil, in.Body) },
				a.takes(v, v.Group != ""))
		}
	}
	a.loads()
	a.configures()
	a.declares()
	s := a.service
	post(a, gate.RoleAdmin, "/plugins/reload", "reload-plugins", "Replace the processes of every plugin, as SIGHUP does",
		func(ctx context.Context, _ *none) (reloadList, error) {
			list, err := s.Reload(ctx, "")
			return reloadList{list}, err
		})
	type plugin struct {
		Plugin string `path:"plugin"`
	}
	post(a, gate.RoleAdmin, "/plugins/{plugin}/reload", "reload-plugin", "Replace the processes of a plugin",
		func(ctx context.Context, in *plugin) (reloadList, error) {
			list, err := s.Reload(ctx, in.Plugin)
			return reloadList{list}, err
		})
}

// configures are about the configuration of the process itself.
func (a *api) configures() {
	s := a.service
	for method, id := range map[string]string{http.MethodGet: "plan", http.MethodPost: "plan-now"} {
		gate.Get(a.API, gate.RoleAdmin, method, base+"/plan", id,
			"Tell what the configuration would change as it is written down now, what that costs, and what is lost",
			func(ctx context.Context, _ *none) (control.Configured, error) { return s.Plan(ctx) })
	}
	for action, summary := range map[string]string{
		"reload": "Take over the configuration as it is written down now, as SIGHUP does",
		"apply":  "Take over the configuration as it is written down now, as it was planned",
	} {
		post(a, gate.RoleAdmin, "/"+action, action, summary,
			func(ctx context.Context, _ *none) (control.Configured, error) { return s.Configure(ctx, action) })
	}
}

type reloadList struct {
	Plugins []control.Reloaded `json:"plugins"`
}

// takes has a route take of a body what its verb does: anything else is refused, and not passed over.
func (a *api) takes(v *verbs.Verb, named bool) func(*huma.Operation) {
	all := huma.SchemaFromType(a.Document().Components.Schemas, reflect.TypeFor[actBody]())
	fields := append([]string{"dry_run"}, v.Takes...)
	if named {
		fields = append(fields, "pipelines")
	}
	if v.Scope == verbs.Rows {
		fields = append(fields, "limit", "continues")
	}
	its := &huma.Schema{Type: huma.TypeObject, Properties: maps.Clone(all.Properties), AdditionalProperties: false}
	maps.DeleteFunc(its.Properties, func(name string, _ *huma.Schema) bool { return !slices.Contains(fields, name) })
	for _, name := range all.Required {
		if slices.Contains(fields, name) {
			its.Required = append(its.Required, name)
		}
	}
	return func(op *huma.Operation) {
		op.RequestBody = &huma.RequestBody{
			Required: len(its.Required) > 0, Content: map[string]*huma.MediaType{"application/json": {Schema: its}},
		}
	}
}

// act does what a request asks for.
func (a *api) act(ctx context.Context, v *verbs.Verb, pipelines []string, in *actBody) (Acted, error) {
	in = cmp.Or(in, &actBody{})
	older, err := duration("body.older_than", in.OlderThan)
	if err != nil {
		return Acted{}, err
	}
	r := verbs.Request{
		Keys: in.Keys, Class: in.Class, Code: in.Code, OlderThan: older, Priority: in.Priority, On: in.On, At: in.At,
		DryRun: in.DryRun, Limit: in.Limit, Continues: in.Continues,
	}
	if in.For != "" {
		d, err := duration("body.for", in.For)
		if err != nil {
			return Acted{}, err
		}
		r.For = &d
	}
	return a.service.Act(ctx, v, append(pipelines, in.Pipelines...), r)
}
