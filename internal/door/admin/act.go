package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// Acted is the result of an action.
type Acted struct {
	DryRun   bool            `json:"dry_run" doc:"Whether this was a dry run, which changes nothing"`
	Outcomes []verbs.Outcome `json:"outcomes"`
}

// usualRows is the default limit on the rows that an action changes.
const usualRows = 10_000

// Act performs a verb on pipelines, under the name of the caller, which the audit records with the address. Without
// pipelines it applies to all that the caller sees, if the verb supports that. If ctx ends, the work done before is
// kept, and the audit has its row count.
func (s *Service) Act(ctx context.Context, v *verbs.Verb, pipelines []string, r verbs.Request) (Acted, error) {
	defer s.look.forget()
	done := Acted{DryRun: r.DryRun, Outcomes: []verbs.Outcome{}}
	some := v.Scope == verbs.Rows && !v.Whole() // without names: all that the caller sees
	who, pool, names, err := s.mayAct(ctx, pipelines, some, r.DryRun)
	switch {
	case err != nil:
		return done, err
	case len(pipelines) == 0 && !v.OfAll():
		return done, gate.Wrong("body.pipelines", v.Name+" takes the names of pipelines")
	case len(pipelines) == 0 && !some:
		names = nil
	}
	if v.Scope == verbs.Rows {
		r.Limit = cmp.Or(r.Limit, usualRows)
	}
	done.Outcomes, err = verbs.New(pool, who.SaidBy()).Do(ctx, v, names, r)
	s.o.Log.InfoContext(ctx, "administrator acted", "by", who.SaidBy(), "action", v.Name, "dry_run", r.DryRun,
		"pipelines", len(names), "refused", err != nil)
	return done, err
}

// mayAct returns the caller, if it may act, and the named pipelines. Without names these are all that it sees if some
// is set; otherwise a token for some pipelines is rejected.
func (s *Service) mayAct(ctx context.Context, pipelines []string, some, dry bool) (who gate.Caller, pool *pgxpool.Pool,
	names []string, err error,
) {
	who, pool, names, err = s.meant(ctx, gate.RoleOperator, pipelines)
	if err == nil {
		err = s.writable(dry)
	}
	if err == nil && len(pipelines) == 0 && !some {
		_, err = gate.Wholly(ctx, gate.RoleOperator)
	}
	return who, pool, names, err
}

// ReadOnly reports whether changes are disabled here, for every caller.
func (s *Service) ReadOnly() bool { return s.config().Admin.ReadOnly }

// MayChange returns why the caller may change nothing here, or nil.
func (s *Service) MayChange(ctx context.Context) error {
	if _, err := gate.Asked(ctx, gate.RoleOperator); err != nil {
		return err
	}
	return s.writable(false)
}

// writable rejects changes if the configuration disables them.
func (s *Service) writable(dry bool) error {
	if !s.config().Admin.ReadOnly || dry {
		return nil
	}
	return gate.Refuse(http.StatusForbidden, "read_only", "nothing can be changed here: http.admin.read_only is on",
		"use the command line or SQL instead")
}

// Reload replaces the processes of a plugin, or of all plugins of this process with "", as SIGHUP does.
func (s *Service) Reload(ctx context.Context, plugin string) ([]control.Reloaded, error) {
	who, err := gate.Wholly(ctx, gate.RoleAdmin)
	if err == nil {
		err = s.writable(false)
	}
	if err != nil {
		return nil, err
	}
	var which []string
	if plugin != "" {
		which = []string{plugin}
	}
	now := s.o.Snapshot()
	if plugin != "" && !slices.ContainsFunc(now.Control().Plugins, func(p control.Plugin) bool { return p.Plugin == plugin }) {
		return nil, gate.Refuse(http.StatusNotFound, "plugin_not_found",
			fmt.Sprintf("no plugin %q is in use here", plugin), "GET /api/v1/plugins lists them")
	}
	list := s.o.Reload(ctx, who.SaidBy(), which)
	for i := range list {
		list[i].Detail = s.o.Redact(list[i].Detail)
	}
	s.o.Log.InfoContext(ctx, "administrator reloaded a plugin", "by", who.SaidBy(), "plugin", plugin)
	return append([]control.Reloaded{}, list...), ctx.Err()
}

// Trial is the body of a route without other fields. (huma ignores embedded fields of unexported types.)
type Trial struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Change nothing, and report what would be done"`
}

// actBody is the body of verbs; each verb has only some of its fields.
type actBody struct {
	Trial

	Pipelines []string  `json:"pipelines,omitempty" maxItems:"100" doc:"Absent: all, if the action allows that; exactly one with keys"`
	Keys      []string  `json:"keys,omitempty" maxItems:"1000" doc:"Keys of rows; absent: all rows that the action applies to"`
	Class     string    `json:"class,omitempty" maxLength:"200" doc:"Of the error"`
	Code      string    `json:"code,omitempty" maxLength:"200" doc:"Of the error"`
	OlderThan string    `json:"older_than,omitempty" doc:"Minimum age of the change, such as 10m"`
	Priority  string    `json:"priority" enum:"low,normal,high,urgent"`
	For       string    `json:"for,omitempty" doc:"How long to work regardless of the hours, such as 2h; 0s ends that"`
	At        time.Time `json:"at,omitzero" doc:"Process the rows at this time; absent: now"`
	Limit     int64     `json:"limit,omitempty" minimum:"1" maximum:"100000" default:"10000" doc:"Maximum number of rows"`
	Continues int64     `json:"continues,omitempty" minimum:"1" doc:"audit_id of an answer that left rows, to continue it"`
}

// acts adds the routes of actions; those of verbs are derived from the list of verbs.
func (a *api) acts() {
	for _, v := range verbs.All {
		if v.Group == "" {
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

// configures adds the routes about the configuration of the process.
func (a *api) configures() {
	s := a.service
	gate.Get(a.API, gate.RoleAdmin, http.MethodGet, base+"/plan", "plan",
		"Show what the current configuration file would change, what that costs, and what is lost",
		func(ctx context.Context, _ *none) (control.Configured, error) { return s.Plan(ctx) })
	for action, summary := range map[string]string{
		"reload": "Load the current configuration file, as SIGHUP does",
		"apply":  "Load the current configuration file as planned",
	} {
		post(a, gate.RoleAdmin, "/"+action, action, summary,
			func(ctx context.Context, _ *none) (control.Configured, error) { return s.Configure(ctx, action) })
	}
}

type reloadList struct {
	Plugins []control.Reloaded `json:"plugins"`
}

// takes limits the body of a route to the fields of its verb: others are rejected, not ignored.
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

// act performs the requested action.
func (a *api) act(ctx context.Context, v *verbs.Verb, pipelines []string, in *actBody) (Acted, error) {
	in = cmp.Or(in, &actBody{})
	older, err := duration("body.older_than", in.OlderThan)
	if err != nil {
		return Acted{}, err
	}
	r := verbs.Request{
		Keys: in.Keys, Class: in.Class, Code: in.Code, OlderThan: older, Priority: in.Priority, At: in.At,
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

// Plan returns what the current configuration file would change.
func (s *Service) Plan(ctx context.Context) (control.Configured, error) {
	if _, err := gate.Wholly(ctx, gate.RoleAdmin); err != nil {
		return control.Configured{}, err
	}
	if s.o.Plan == nil {
		return control.Configured{}, notConfigurable()
	}
	return s.o.Plan(ctx)
}

// Configure loads the current configuration file; action is reload or apply, for the audit.
func (s *Service) Configure(ctx context.Context, action string) (control.Configured, error) {
	who, err := gate.Wholly(ctx, gate.RoleAdmin)
	if err == nil {
		err = s.writable(false)
	}
	if err != nil {
		return control.Configured{}, err
	}
	if s.o.Configure == nil {
		return control.Configured{}, notConfigurable()
	}
	return s.o.Configure(ctx, action, who.SaidBy())
}

func notConfigurable() error {
	return gate.Refuse(http.StatusConflict, "no_sidecar", "this program runs no pipelines: nothing is configured here",
		"embedsidecar run --admin-listen answers this")
}
