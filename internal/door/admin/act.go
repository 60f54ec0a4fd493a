package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	actions "github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Verb is what can be done to pipelines and rows.
type Verb string

// The verbs.
const (
	Pause       Verb = "pause"      // of pipelines; without any: by the switch over all
	Resume      Verb = "resume"     // as pause; for a time: of pipelines
	BackfillNow Verb = "backfill"   // of pipelines
	Priority    Verb = "priority"   // of pipelines
	Reembed     Verb = "reembed"    // of one pipeline: of all its rows, or by keys
	Requeue     Verb = "requeue"    // of one pipeline: what is cancelled, or by keys
	Cancel      Verb = "cancel"     // of one pipeline, by keys
	Prioritise  Verb = "prioritise" // of one pipeline: all that waits, or by keys
	Retry       Verb = "retry"      // of what a filter says
	Discard     Verb = "discard"    // of what a filter says
)

// Action is something to be done. What a verb has no use for must be zero.
type Action struct {
	Verb      Verb
	Pipelines []string // none: all that the caller sees, where the verb is not of one
	Filter    report.TaskFilter
	Priority  string
	For       *time.Duration // to resume for, whatever the hours are; 0 ends that; nil: within the hours
	DryRun    bool
	Limit     int64 // rows at most; 0: 10,000
	// Continues is the entry of the audit of an action that left rows, to go on with it.
	Continues int64
}

// Outcome is what became of one pipeline.
type Outcome struct {
	Pipeline string `json:"pipeline" doc:"Empty: the switch over all of them"`
	Result   string `json:"result" doc:"In a word, as the command line has it"`

	Rows *actions.Portion `json:"rows,omitempty" doc:"Where rows were changed"`
}

// Acted is what became of an action.
type Acted struct {
	DryRun   bool      `json:"dry_run" doc:"Nothing was changed: this is what would be"`
	Outcomes []Outcome `json:"outcomes"`
	Stay     []string  `json:"stay_paused,omitempty" doc:"Pipelines that stay paused by their own name"`
}

// add adds what became of pipelines as a whole.
func (d *Acted) add(list []actions.Outcome) {
	for _, o := range list {
		d.Outcomes = append(d.Outcomes, Outcome{Pipeline: o.Pipeline, Result: o.Result})
	}
}

// Bounds of an action.
const (
	usualRows = 10_000
	mostRows  = 100_000
	mostKeys  = 1000
)

// Act has something done. It is done under the caller's name, which the audit keeps with his address; a dry run
// changes nothing and leaves no entry. When ctx ends, what was done stays done, and the audit says how much that was.
func (s *Service) Act(ctx context.Context, a Action) (Acted, error) {
	done := Acted{DryRun: a.DryRun, Outcomes: []Outcome{}}
	who, pool, names, err := s.meant(ctx, gate.RoleOperator, a.Pipelines)
	if err == nil {
		err = s.mayChange(a.DryRun)
	}
	if err == nil {
		err = a.check(who)
	}
	if err != nil {
		return done, err
	}
	err = s.act(ctx, pool, who, names, &a, &done)
	s.o.Log.InfoContext(ctx, "administrator acted", "by", who.SaidBy(), "action", string(a.Verb), "dry_run", a.DryRun,
		"pipelines", len(names), "refused", err != nil)
	return done, err
}

// mayChange refuses changes where the configuration does.
func (s *Service) mayChange(dry bool) error {
	if !s.o.Config.Admin.ReadOnly || dry {
		return nil
	}
	return gate.Refuse(http.StatusForbidden, "read_only", "nothing can be changed here: http.admin.read_only is on", "the command line and SQL act on the database itself")
}

// check returns what is wrong with an action.
func (a *Action) check(who gate.Caller) error {
	f := &a.Filter
	filtered := f.Class != "" || f.Code != "" || f.OlderThan != 0
	ofRows := slices.Contains([]Verb{Reembed, Requeue, Cancel, Prioritise, Retry, Discard}, a.Verb)
	prioritises := a.Verb == Priority || a.Verb == Prioritise
	switch {
	case len(f.States) > 0:
		return gate.Wrong("body.state", "an action does not choose by state")
	case a.Verb == Retry || a.Verb == Discard:
	case filtered:
		return gate.Wrong("body", string(a.Verb)+" takes keys, and neither class, code nor age")
	}
	switch {
	case !ofRows && len(f.Keys) > 0:
		return gate.Wrong("body.keys", string(a.Verb)+" takes no keys")
	case len(f.Keys) > mostKeys:
		return gate.Wrong("body.keys", fmt.Sprintf("%d keys at most in one request", mostKeys))
	case f.OlderThan < 0:
		return gate.Wrong("body.older_than", "expected a duration that is not negative")
	case a.Limit < 0 || a.Limit > mostRows:
		return gate.Wrong("body.limit", fmt.Sprintf("expected a number from 1 to %d", mostRows))
	case a.Verb == Cancel && len(f.Keys) == 0:
		return gate.Wrong("body.keys", "cancel takes the keys of the rows")
	case prioritises != (a.Priority != ""):
		return gate.Wrong("body.priority", "priority and prioritise take low, normal, high or urgent, and nothing else takes it")
	case prioritises && !slices.Contains(actions.Priorities, a.Priority):
		return gate.Wrong("body.priority", fmt.Sprintf("there is no priority %q", a.Priority), "low, normal, high or urgent")
	case (a.ofOne() || len(f.Keys) > 0 || a.Continues != 0) && len(a.Pipelines) != 1:
		return gate.Wrong("body.pipelines", "it takes one pipeline: keys and numbers of entries are those of one")
	case a.For != nil && (a.Verb != Resume || *a.For < 0):
		return gate.Wrong("body.for", "resume takes a time that is not negative, and nothing else takes one")
	case len(a.Pipelines) == 0 && len(who.Pipelines) > 0 && !ofRows:
		return gate.Wrong("body.pipelines", "name the pipelines: this token is for some")
	}
	return nil
}

// ofOne reports whether a verb takes exactly one pipeline.
func (a *Action) ofOne() bool {
	ofOne := []Verb{Reembed, Requeue, Cancel, Prioritise, Priority, BackfillNow, Discard}
	return a.For != nil || slices.Contains(ofOne, a.Verb)
}

func (s *Service) act(ctx context.Context, pool *pgxpool.Pool, who gate.Caller, names []string, a *Action, done *Acted,
) error {
	by := actions.New(pool, who.SaidBy())
	add := func(list []actions.Outcome, err error) error {
		done.add(list)
		return err
	}
	switch a.Verb {
	case Pause, Resume:
		if a.For != nil {
			return add(by.ResumeFor(ctx, names, *a.For, a.DryRun))
		}
		if len(a.Pipelines) == 0 {
			names = nil
		}
		switched, err := by.Switch(ctx, a.Verb == Resume, names, a.DryRun)
		done.Stay = switched.Paused
		return add(switched.Outcomes, err)
	case BackfillNow:
		return add(by.Backfill(ctx, names, a.DryRun))
	case Priority:
		o, err := by.Prioritise(ctx, names[0], a.Priority, a.DryRun)
		return add([]actions.Outcome{o}, err)
	case Reembed, Requeue, Cancel, Prioritise, Retry, Discard:
	}
	left := a.Limit
	if left == 0 {
		left = usualRows
	}
	for _, name := range names {
		p, err := by.Portion(ctx, string(a.Verb), name, actions.Bounds{
			Filter: a.Filter, Priority: a.Priority, DryRun: a.DryRun, Limit: left, Continues: a.Continues,
		})
		if err != nil {
			return err
		}
		done.Outcomes = append(done.Outcomes, Outcome{Pipeline: name, Result: p.Result, Rows: &p})
		if left -= p.Changed; left <= 0 {
			break
		}
	}
	return nil
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
