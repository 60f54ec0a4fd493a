package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
)

// Acted is what became of an action.
type Acted struct {
	DryRun   bool            `json:"dry_run" doc:"Nothing was changed: this is what would be"`
	Outcomes []verbs.Outcome `json:"outcomes"`
}

// usualRows is how many rows an action changes that names no limit.
const usualRows = 10_000

// Act has a verb done on pipelines, under the name of who asks, which the audit keeps with his address. Without
// pipelines it is about all that the caller sees, where the verb takes that. When ctx ends, what was done stays done,
// and the audit says how much that was.
func (s *Service) Act(ctx context.Context, v *verbs.Verb, pipelines []string, r verbs.Request) (Acted, error) {
	done := Acted{DryRun: r.DryRun, Outcomes: []verbs.Outcome{}}
	some := v.Scope == verbs.Rows && !v.Whole() // without names: of those that the caller sees
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

// mayAct returns who acts, if he may, and the pipelines that he means. Without names they are all that he sees, if what
// is done takes some; else a token for some pipelines may not do it.
func (s *Service) mayAct(ctx context.Context, pipelines []string, some, dry bool) (who gate.Caller, pool *pgxpool.Pool,
	names []string, err error,
) {
	who, pool, names, err = s.meant(ctx, gate.RoleOperator, pipelines)
	if err == nil {
		err = s.mayChange(dry)
	}
	if err == nil && len(pipelines) == 0 && !some {
		_, err = gate.Wholly(ctx, gate.RoleOperator)
	}
	return who, pool, names, err
}

// mayChange refuses changes where the configuration does.
func (s *Service) mayChange(dry bool) error {
	if !s.config().Admin.ReadOnly || dry {
		return nil
	}
	return gate.Refuse(http.StatusForbidden, "read_only", "nothing can be changed here: http.admin.read_only is on",
		"the command line and SQL act on the database itself")
}

// Reload has a plugin started anew beside itself, or with "" all of this process, as SIGHUP does.
func (s *Service) Reload(ctx context.Context, plugin string) ([]control.Reloaded, error) {
	who, err := gate.Wholly(ctx, gate.RoleAdmin)
	if err == nil {
		err = s.mayChange(false)
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
