// Package actions is what a person can have done to pipelines: pause, resume, retry, requeue, cancel, discard,
// prioritise, backfill, reembed, notify, verify. It needs the database only, so it works whether a sidecar runs or not;
// those that run hear of it within seconds. What an action does, and its entry of the audit, are in functions of the
// schema, which every way in calls: command line, SQL, HTTP.
package actions

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Actions acts on the pipelines of a database.
type Actions struct {
	pool *pgxpool.Pool
	by   string
}

// New acts through a pool, which stays the caller's, for somebody, whose name goes into the audit.
func New(pool *pgxpool.Pool, by string) *Actions { return &Actions{pool: pool, by: by} }

// Outcome is what became of one pipeline; Pipeline is empty for the switch over all of them.
type Outcome struct {
	Pipeline string `json:"pipeline"`
	Result   string `json:"result"`
	Rows     int64  `json:"rows,omitempty"`

	Unknown []string `json:"-"` // keys that were asked for and that the pipeline has no row with
}

// Switched is what became of a switch.
type Switched struct {
	Outcomes []Outcome
	Paused   []string // those that stay paused by their own name, where the switch over all was turned on
}

// Switch lets pipelines go on, or pauses them: those of these names, or without any all of them by the switch that is
// over all. A dry run tells what it would do.
func (a *Actions) Switch(ctx context.Context, on bool, names []string, dry bool) (Switched, error) {
	found, err := lookup.Brief(ctx, a.pool, names)
	if err != nil {
		return Switched{}, err
	}
	query := "act_pause"
	if on {
		query = "act_resume"
	}
	s := Switched{Outcomes: []Outcome{}}
	if len(names) == 0 {
		word, err := a.act(ctx, query, pgx.StrictNamedArgs{"pipeline": nil, "dry_run": dry})
		if err != nil {
			return Switched{}, err
		}
		s.Outcomes = append(s.Outcomes, Outcome{Result: word})
		for i := range found {
			if on && !found[i].Enabled {
				s.Paused = append(s.Paused, found[i].Name)
			}
		}
		return s, nil
	}
	s.Outcomes, err = a.each(ctx, query, found, dry, nil)
	return s, err
}

// ResumeFor has pipelines work for a time from now on, whatever their hours are; 0 ends that.
func (a *Actions) ResumeFor(ctx context.Context, names []string, d time.Duration, dry bool) ([]Outcome, error) {
	found, err := lookup.Brief(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	return a.each(ctx, "act_resume_for", found, dry, pgx.StrictNamedArgs{"time": d})
}

// Notify turns notifications of what happens on or off: LISTEN embedsidecar_changes.
func (a *Actions) Notify(ctx context.Context, on, dry bool) (Outcome, error) {
	if _, err := lookup.Brief(ctx, a.pool, nil); err != nil {
		return Outcome{}, err
	}
	word, err := a.act(ctx, "act_notify", pgx.StrictNamedArgs{"on": on, "dry_run": dry})
	return Outcome{Result: word}, err
}

// each runs a function that answers with a word for each of some pipelines, with more arguments, if it has any.
func (a *Actions) each(ctx context.Context, query string, found []pipeline.Pipeline, dry bool,
	more pgx.StrictNamedArgs,
) ([]Outcome, error) {
	list := []Outcome{}
	for i := range found {
		args := pgx.StrictNamedArgs{"pipeline": found[i].Name, "dry_run": dry}
		maps.Copy(args, more)
		word, err := a.act(ctx, query, args)
		if err != nil {
			return nil, err
		}
		list = append(list, Outcome{Pipeline: found[i].Name, Result: word})
	}
	return list, nil
}

// filterArgs are those of a statement that takes dead letters; "" and 0 are told as NULL.
func filterArgs(f *report.TaskFilter, pipeline string, dry bool) pgx.StrictNamedArgs {
	args := pgx.StrictNamedArgs{
		"pipeline": pipeline, "class": nil, "code": nil, "keys": nil, "older_than": nil, "dry_run": dry,
	}
	for name, value := range map[string]string{"class": f.Class, "code": f.Code} {
		if value != "" {
			args[name] = value
		}
	}
	if len(f.Keys) > 0 {
		args["keys"] = f.Keys
	}
	if f.OlderThan > 0 {
		args["older_than"] = f.OlderThan
	}
	return args
}

// Retry gives dead letters and rows that wait for another try one at once, as a change of the row would: those of the
// pipelines that the words name, or of all, or those of one pipeline whose keys follow its name. A dry run only counts.
func (a *Actions) Retry(ctx context.Context, words []string, f report.TaskFilter, dry bool) ([]Outcome, error) {
	return a.filtered(ctx, words, f, dry, "act_retry", "nothing_to_retry", "would_be_retried", "retried")
}

// Discard puts dead letters away: they are told as cancelled from then on. A dry run only counts.
func (a *Actions) Discard(ctx context.Context, words []string, f report.TaskFilter, dry bool) ([]Outcome, error) {
	return a.filtered(ctx, words, f, dry, "act_discard", "nothing_to_discard", "would_be_discarded", "discarded")
}

// filtered runs a function that takes a filter on the pipelines, or on rows of one, that the words name.
func (a *Actions) filtered(ctx context.Context, words []string, f report.TaskFilter, dry bool,
	query, nothing, would, done string,
) ([]Outcome, error) {
	found, keys, err := lookup.BriefRows(ctx, a.pool, words)
	if err != nil {
		return nil, err
	}
	f.Keys = append(f.Keys, keys...)
	list := []Outcome{}
	for i := range found {
		unknown, err := a.unknown(ctx, found[i].ID, f.Keys)
		if err != nil {
			return nil, err
		}
		n, err := a.portions(ctx, query, filterArgs(&f, found[i].Name, dry))
		if err != nil {
			return nil, err
		}
		o := outcome(found[i].Name, n, dry, nothing, would, done)
		o.Unknown = unknown
		list = append(list, o)
	}
	return list, nil
}

// NoteReloads has the audit tell of plugins that were reloaded, or refused to be.
func (a *Actions) NoteReloads(ctx context.Context, list []control.Reloaded) error {
	for _, r := range list {
		_, err := a.pool.Exec(ctx, sqlfiles.Query("note_reload"), pgx.StrictNamedArgs{
			"plugin": r.Plugin, "model": r.Model, "version": r.Version, "result": r.Result, "said_by": a.by,
		})
		if err != nil {
			return refused(err)
		}
	}
	return nil
}

// Backfill has every row of pipelines looked at now: those that have no vector of their text as it is are embedded.
func (a *Actions) Backfill(ctx context.Context, names []string, dry bool) ([]Outcome, error) {
	found, err := lookup.Brief(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	return a.each(ctx, "act_backfill", found, dry, nil)
}

// Prioritise gives the live changes of pipelines a lane from now on.
func (a *Actions) Prioritise(ctx context.Context, name, priority string, dry bool) (Outcome, error) {
	found, err := lookup.Brief(ctx, a.pool, []string{name})
	if err != nil {
		return Outcome{}, err
	}
	word, err := a.act(ctx, "act_priority",
		pgx.StrictNamedArgs{"pipeline": found[0].Name, "priority": priority, "dry_run": dry})
	return Outcome{Pipeline: found[0].Name, Result: word}, err
}

// PrioritiseWaiting gives rows of a pipeline that wait another lane, or without keys all that do. A dry run only
// counts.
func (a *Actions) PrioritiseWaiting(ctx context.Context, name, priority string, keys []string, dry bool,
) (Outcome, error) {
	return a.rows(ctx, "act_prioritise", name, keys, pgx.StrictNamedArgs{"priority": priority}, dry,
		"nothing_to_prioritise", "would_be_prioritised", "prioritised")
}

// Reembed has rows of a pipeline embedded anew though their texts are what they were, or every row without keys. A dry
// run only counts those that have a vector.
func (a *Actions) Reembed(ctx context.Context, name string, keys []string, dry bool) (Outcome, error) {
	return a.rows(ctx, "act_reembed", name, keys, nil, dry, "nothing_to_reembed", "reembed_would_be_requested",
		"reembed_requested")
}

// Requeue has rows of a pipeline looked at again, whatever became of them, or without keys those that are cancelled. A
// dry run only counts.
func (a *Actions) Requeue(ctx context.Context, name string, keys []string, dry bool) (Outcome, error) {
	return a.rows(ctx, "act_requeue", name, keys, nil, dry, "nothing_to_requeue", "would_be_requeued", "requeued")
}

// Cancel takes rows of a pipeline out of the queue: until they change, or somebody requeues them, they are told as
// cancelled. A dry run only counts.
func (a *Actions) Cancel(ctx context.Context, name string, keys []string, dry bool) (Outcome, error) {
	return a.rows(ctx, "act_cancel", name, keys, nil, dry, "nothing_to_cancel", "would_be_cancelled", "cancelled")
}

// rows runs a function that takes keys on rows of a pipeline, with more arguments, if it has any.
func (a *Actions) rows(ctx context.Context, query, name string, keys []string, more pgx.StrictNamedArgs, dry bool,
	nothing, would, done string,
) (Outcome, error) {
	found, err := lookup.Brief(ctx, a.pool, []string{name})
	if err != nil {
		return Outcome{}, err
	}
	unknown, err := a.unknown(ctx, found[0].ID, keys)
	if err != nil {
		return Outcome{}, err
	}
	args := pgx.StrictNamedArgs{"pipeline": found[0].Name, "dry_run": dry}
	maps.Copy(args, more)
	n, err := a.ofKeys(ctx, query, args, keys)
	if err != nil {
		return Outcome{}, err
	}
	o := outcome(found[0].Name, n, dry, nothing, would, done)
	o.Unknown = unknown
	return o, nil
}

// unknown returns which keys a pipeline has never had to do with; none where the role may not look.
func (a *Actions) unknown(ctx context.Context, id int32, keys []string) ([]string, error) {
	unknown, err := report.UnknownKeys(ctx, a.pool, id, keys)
	if database.Denied(err) {
		return nil, nil
	}
	return unknown, err
}

// Tasks returns tasks of pipelines, the oldest first, behind the one with the number after, at most so many; redact
// takes what is secret out of their messages.
func (a *Actions) Tasks(ctx context.Context, words []string, f report.TaskFilter, after int64, limit int,
	redact func(string) string,
) ([]report.Task, error) {
	found, keys, err := lookup.BriefRows(ctx, a.pool, words)
	if err != nil {
		return nil, err
	}
	f.Keys = append(f.Keys, keys...)
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].Name
	}
	list, err := report.Tasks(ctx, a.pool, names, f, after, limit)
	for i := range list {
		list[i].Message = redact(list[i].Message)
	}
	return append([]report.Task{}, list...), err
}

// Audit returns what was done to pipelines, or to whatever, before the entry with a number, the newest first.
func (a *Actions) Audit(ctx context.Context, names []string, before int64, limit int) ([]report.Action, error) {
	if _, err := lookup.Brief(ctx, a.pool, nil); err != nil {
		return nil, err
	}
	list, err := report.Audit(ctx, a.pool, names, before, limit)
	return append([]report.Action{}, list...), refused(err)
}

// Failed returns the rows of pipelines that could not be embedded, at most so many of each; redact takes what is
// secret out of their messages.
func (a *Actions) Failed(ctx context.Context, names []string, limit int,
	redact func(string) string,
) ([]report.FailedRow, error) {
	found, err := lookup.Named(ctx, a.pool, names)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(found))
	for i := range found {
		all[i] = found[i].Name
	}
	list, err := report.Failed(ctx, a.pool, all, limit)
	observe.HideSecrets(list, redact)
	return append([]report.FailedRow{}, list...), err
}

// outcome words what was done to rows of a pipeline; nothing is the word where there were none.
func outcome(name string, rows int64, dry bool, nothing, would, done string) Outcome {
	o := Outcome{Pipeline: name, Result: done, Rows: rows}
	switch {
	case rows == 0 && nothing != "":
		o.Result = nothing
	case dry:
		o.Result = would
	}
	return o
}

// refused tells whose role may do it, where the server says that this one may not.
func refused(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == pgerrcode.InsufficientPrivilege {
		return problem.New(problem.Permission, err,
			"use the role that owns the schema embedsidecar, the one that ran embedsidecar init, or a member of embedsidecar_operator")
	}
	return err
}
