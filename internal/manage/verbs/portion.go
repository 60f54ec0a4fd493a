package actions

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Priorities are the words for lanes.
var Priorities = []string{"low", "normal", "high", "urgent"}

// Bounds say which rows an action is about, and how many of them.
type Bounds struct {
	Filter   report.TaskFilter // of it retry and discard take all but states, the others keys
	Priority string            // that prioritise gives
	DryRun   bool
	Limit    int64
	// Continues is the entry of the audit of an action that left rows; 0: it begins.
	Continues int64
}

// Portion is what became of rows of a pipeline.
type Portion struct {
	Result string `json:"-"`
	// nil: an action that goes on counts only whether anything is left
	Matched   *int64   `json:"matched,omitempty" doc:"How many rows there were for it; absent in an action that goes on"`
	Changed   int64    `json:"changed"`
	Remaining *int64   `json:"remaining,omitempty" doc:"How many of them are left; absent in an action that goes on and has more to do"`
	AuditID   int64    `json:"audit_id,omitempty" doc:"Its entry in the audit, with which it goes on; a dry run has none"`
	Unknown   []string `json:"unknown_keys,omitempty" doc:"Keys that the pipeline has never had to do with"`
}

// rowActions are those that take portions of rows: their statements, and their words for nothing, a dry run and done.
var rowActions = map[string]struct{ query, nothing, would, done string }{
	"retry":      {"act_retry", "nothing_to_retry", "would_be_retried", "retried"},
	"discard":    {"act_discard", "nothing_to_discard", "would_be_discarded", "discarded"},
	"reembed":    {"act_reembed", "nothing_to_reembed", "reembed_would_be_requested", "reembed_requested"},
	"requeue":    {"act_requeue", "nothing_to_requeue", "would_be_requeued", "requeued"},
	"cancel":     {"act_cancel", "nothing_to_cancel", "would_be_cancelled", "cancelled"},
	"prioritise": {"act_prioritise", "nothing_to_prioritise", "would_be_prioritised", "prioritised"},
}

// Portion runs an action of these on rows of a pipeline, until so many of them are changed or none is left. Keys are at
// most as many as a function of the schema takes.
func (a *Actions) Portion(ctx context.Context, action, name string, b Bounds) (Portion, error) {
	of := rowActions[action]
	found, err := lookup.Brief(ctx, a.pool, []string{name})
	if err != nil {
		return Portion{}, err
	}
	unknown, err := a.unknown(ctx, found[0].ID, b.Filter.Keys)
	if err != nil {
		return Portion{}, err
	}
	var args pgx.StrictNamedArgs
	if action == "retry" || action == "discard" {
		args = filterArgs(&b.Filter, found[0].Name, b.DryRun)
	} else {
		args = pgx.StrictNamedArgs{"pipeline": found[0].Name, "keys": nil, "dry_run": b.DryRun}
		if len(b.Filter.Keys) > 0 {
			args["keys"] = b.Filter.Keys
		}
		if action == "prioritise" {
			args["priority"] = b.Priority
		}
	}
	p, err := a.some(ctx, of.query, args, b.Limit, b.Continues)
	rows := p.Changed
	if b.DryRun && p.Matched != nil {
		rows = *p.Matched
	}
	p.Result, p.Unknown = outcome(name, rows, b.DryRun, of.nothing, of.would, of.done).Result, unknown
	return p, err
}
