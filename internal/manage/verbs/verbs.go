// Package verbs has one entry for each action of a user: pause, resume, retry, requeue and so on. The command, the HTTP
// route, the form of the dashboard, the word in the audit and the help are derived from it. A function of the schema
// performs the action and writes its audit entry. So a verb needs only the database and works whether a sidecar runs or
// not. The streaming sidecar notices at its next heartbeat, others within a minute; after a pause is committed, nothing
// is leased.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Scope is what a verb applies to.
type Scope int

// The scopes.
const (
	Pipelines Scope = iota // some pipelines
	Switch                 // some pipelines; without names: the switch over all of them
	Rows                   // rows of pipelines: they are counted, and changed in portions
)

// Arguments that a verb may take besides the names of pipelines.
const (
	Keys      = "keys"
	Class     = "class"
	Code      = "code"
	OlderThan = "older_than"
	Priority  = "priority"
	For       = "for" // a duration
	At        = "at"  // a time
)

// arguments maps them to arguments of the SQL functions.
var arguments = map[string]string{
	Keys: "keys => @keys::text[]", Class: "class => @class::text", Code: "code => @code::text",
	OlderThan: "older_than => @older_than::interval", Priority: "priority => @priority::text",
	For: "period => @for::interval", At: "at => @at::timestamptz",
}

// Verb is an action.
type Verb struct {
	Name  string // in the route, the form and the command (after the group)
	Group string // tasks: routes and commands with a common prefix
	Scope Scope
	One   bool     // it takes exactly one pipeline
	Takes []string // arguments besides pipelines
	SQL   string   // its function in the schema
	Done  string   // the result if rows were changed; the function returns the others
	Would string   // the result of a dry run; "": would_be_ and Done

	Button, Tells string // texts of the form
	Grave         bool   // the form always asks for confirmation
	Arguments     string // of the command
	MinArgs       int
	Usage         string // of the command and of the route
	Description   string
}

// Priorities lists the priorities, lowest first.
var Priorities = pipeline.LaneWords

// The verbs.
var (
	Pause = &Verb{
		Name: "pause", Scope: Switch, SQL: "pause", Button: "Pause", Arguments: "[PIPELINE...]",
		Usage: "embed nothing until resume; changes are queued meanwhile",
		Tells: "Nothing is embedded until someone resumes. Changes are queued meanwhile, and no writer waits.",
		Description: `Without a name it pauses all pipelines by one switch. Batches in work are finished. It can be
repeated; --dry-run shows what would be done. For maintenance, and for embedders that cost money.`,
	}
	Resume = &Verb{
		Name: "resume", Scope: Switch, Takes: []string{For}, SQL: "resume", Button: "Resume", Arguments: "[PIPELINE...]",
		Usage: "end a pause, or let a pipeline work for a time regardless of its hours",
		Tells: "Rows are embedded again.",
		Description: `Without a name it resumes all pipelines by one switch; a pipeline that was paused by its name stays
paused. A pipeline with hours (active) works within them; with --for it works at once and for that time, even if it is
paused by its name. Running sidecars notice within seconds. For the end of a pause.`,
	}
	Backfill = &Verb{
		Name: "backfill", Scope: Pipelines, SQL: "backfill", Button: "Rescan", Arguments: "[PIPELINE...]",
		Usage: "compare every row now, and embed what is missing or stale",
		Tells: "Every row is compared with what was written for it. Rows without a vector of their text are embedded, and no others.",
		Description: `Requests a scan, which a new pipeline, a lost slot or an altered table requests automatically: it compares
every row with what was written for it. Only rows without a vector of their current text are embedded, after live
changes. It starts when a sidecar runs; embedsidecar status shows its progress. --dry-run compares every row now and
reports how many would be embedded, and from a sample of these their tokens (by the model's own tokenizer), the time,
the price (if the model has one in the file) and the space on disk. For that it embeds a few, unless that costs money.
For doubts about the vectors, and after a change that embedsidecar cannot see.`,
	}
	SetPriority = &Verb{
		Name: "priority", Scope: Pipelines, One: true, Takes: []string{Priority}, SQL: "set_priority", Button: "Set priority",
		Usage: "change the priority of a pipeline's live changes",
		Tells: "Live changes of the pipeline have this priority from now on. Rows that wait keep theirs.",
	}
	Reembed = &Verb{
		Name: "reembed", Scope: Rows, One: true, Takes: []string{Keys}, SQL: "reembed", Done: "reembed_requested",
		Would: "reembed_would_be_requested", Button: "Embed again", Arguments: "PIPELINE [KEY...]", MinArgs: 1,
		Usage: "embed rows again even if their texts did not change",
		Tells: "These rows are embedded again although their texts did not change. Each costs a call of the model.",
		Description: `Every row of the pipeline, or the named rows, are sent to the embedder again: no stored or cached vector
is used. The vectors stay until the new ones arrive. A running sidecar does it; embedsidecar wait --caught-up waits for
it. --dry-run estimates texts, tokens, time and price as for backfill; of named rows it counts them. For vectors that
you no longer trust.`,
	}
	Retry = &Verb{
		Name: "retry", Group: "tasks", Scope: Rows, Takes: []string{Keys, Class, Code, OlderThan}, SQL: "retry_failed",
		Done: "retried", Button: "Retry", Arguments: "[PIPELINE...] | PIPELINE KEY...",
		Usage: "retry dead letters, and rows that wait for a retry, at once",
		Tells: "These rows are retried at once, with a full number of attempts.",
		Description: `Takes the rows of these pipelines, of all pipelines, or the named rows. Each gets its full number of
attempts again. Many rows are retried in portions; an interruption undoes no finished portion. --dry-run counts the
rows. For dead letters whose cause is fixed.`,
	}
	Requeue = &Verb{
		Name: "requeue", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys, At, OlderThan}, SQL: "requeue", Done: "requeued",
		Button: "Requeue", Arguments: "PIPELINE [KEY...]", MinArgs: 1,
		Usage: "re-queue rows, or all cancelled rows",
		Tells: "These rows are compared again. A row that needs nothing is not embedded.",
		Description: `Without keys it re-queues cancelled rows; with --older-than only those whose change is older. With
--at the rows wait until that time, unless they change before. A row that needs nothing is not embedded; embedsidecar
reembed embeds it anyway. --dry-run counts the rows. For the end of tasks cancel and tasks discard, and for rows that
are to be embedded later.`,
	}
	Cancel = &Verb{
		Name: "cancel", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys}, SQL: "cancel", Done: "cancelled",
		Button: "Cancel", Arguments: "PIPELINE KEY...", MinArgs: 2,
		Usage: "remove rows from the queue",
		Tells: "These rows leave the queue. They are reported as cancelled until they change or someone re-queues them.",
		Description: `The rows are not embedded until they change, a scan finds that they differ, or embedsidecar tasks
requeue re-queues them; status, wait and explain report them as cancelled. Batches in work are finished. --dry-run
counts the rows. For rows that must not be embedded now.`,
	}
	Discard = &Verb{
		Name: "discard", Group: "tasks", Scope: Rows, Takes: []string{Keys, Class, Code, OlderThan}, SQL: "discard_dead",
		Done: "discarded", Button: "Discard", Grave: true, Arguments: "PIPELINE... | PIPELINE KEY...", MinArgs: 1,
		Usage: "give up on dead letters: they count as cancelled",
		Tells: "These dead letters are reported as cancelled. Their rows get no vector until they change or someone re-queues them.",
		Description: `They keep their error, and status, wait and explain report them as cancelled until the row changes or
embedsidecar tasks requeue re-queues it. --dry-run counts the rows. For rows that cannot be embedded.`,
	}
	Prioritise = &Verb{
		Name: "prioritise", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys, Priority}, SQL: "prioritise",
		Done: "prioritised", Button: "Prioritise", Arguments: "PIPELINE PRIORITY [KEY...]", MinArgs: 2,
		Usage: "change the priority of a pipeline, or of waiting rows",
		Tells: "Waiting rows among these take this priority. They go behind the rows that already have it, in their order.",
		Description: `PRIORITY is low, normal, high or urgent. Without keys it applies to changes from now on: rows that wait
keep theirs, and a configuration with another priority resets it at the next run. With keys, or --waiting, it applies to
waiting rows only. --dry-run counts the rows. For pipelines that share a model.`,
	}
	ClearHistory = &Verb{
		Name: "clear-history", Group: "tasks", Scope: Rows, Takes: []string{OlderThan}, SQL: "clear_history",
		Done: "history_cleared", Would: "history_would_be_cleared", Grave: true, Arguments: "[PIPELINE...]",
		Button: "Clear history",
		Usage:  "delete the history of finished tasks",
		Tells:  "The finished tasks that explain shows are deleted. Queue, ledger and vectors stay.",
		Description: `Deletes the finished tasks that explain and the view finished_tasks show: of these pipelines, or of
all, removed ones included; with --older-than only tasks that ended earlier. Queue, ledger and vectors stay. Old history
is deleted automatically: history.keep and history.rows. Large numbers are deleted in portions. --dry-run counts them.
For keys that must be deleted.`,
	}
)

// All lists the verbs.
var All = []*Verb{
	Pause, Resume, Backfill, Reembed, Retry, Requeue, Cancel, Discard, Prioritise, SetPriority, ClearHistory,
}

// ByName returns the verb with a name, or nil.
func ByName(name string) *Verb {
	if at := slices.IndexFunc(All, func(v *Verb) bool { return v.Name == name }); at >= 0 {
		return All[at]
	}
	return nil
}

// OfAll reports whether a verb may be used without names of pipelines.
func (v *Verb) OfAll() bool {
	return v.Scope == Switch || v.Scope == Rows && v.MinArgs == 0
}

// Whole reports whether a verb without names applies to more than the existing pipelines.
func (v *Verb) Whole() bool { return v.Scope == Switch || v == ClearHistory }

// Has reports whether a verb takes an argument.
func (v *Verb) Has(what string) bool { return slices.Contains(v.Takes, what) }

// query returns the statement that calls the function of a verb.
func (v *Verb) query() string {
	list := []string{"dry_run => @dry_run::boolean", "said_by => @said_by::text", "pipeline => @pipeline::text"}
	for _, what := range v.Takes {
		list = append(list, arguments[what])
	}
	if v.Scope != Rows {
		return fmt.Sprintf("SELECT embedsidecar.%s(%s)", v.SQL, strings.Join(list, ", "))
	}
	list = append(list, "max_rows => @max_rows::integer", "continues => @continues::bigint")
	return fmt.Sprintf("SELECT changed, remaining, audit_id FROM embedsidecar.%s(%s)", v.SQL, strings.Join(list, ", "))
}

func (v *Verb) result(rows int64, dry bool) string {
	switch {
	case rows == 0:
		return "nothing_to_" + strings.TrimSuffix(v.Name, "-history")
	case dry && v.Would != "":
		return v.Would
	case dry:
		return "would_be_" + v.Done
	}
	return v.Done
}

// check validates a request for a number of pipelines.
func (v *Verb) check(pipelines int, r *Request) error {
	for what, given := range map[string]bool{
		Keys: len(r.Keys) > 0, Class: r.Class != "", Code: r.Code != "", OlderThan: r.OlderThan != 0,
		Priority: r.Priority != "", For: r.For != nil, At: !r.At.IsZero(),
	} {
		if given && !v.Has(what) {
			return misuse(fmt.Sprintf("%s takes no %s", v.Name, what))
		}
	}
	if v.Has(Priority) && !slices.Contains(Priorities, r.Priority) {
		return misuse(fmt.Sprintf("there is no priority %q", r.Priority), spelling.DidYouMean(r.Priority, Priorities)...)
	}
	const farthest = 10 * 365 * 24 * time.Hour
	switch {
	case time.Until(r.At) > farthest:
		return misuse("expected a time within ten years")
	case v == Requeue && len(r.Keys) > 0 && r.OlderThan != 0:
		return misuse("give either keys or an age, which selects cancelled rows")
	}
	if pipelines != 1 && (v.One || len(r.Keys) > 0 || r.Continues != 0 || r.For != nil) {
		return misuse(v.Name + " takes one pipeline: keys, times and numbers of entries are those of one")
	}
	return nil
}

func misuse(what string, hints ...string) error {
	return problem.New(problem.Usage, fmt.Errorf("%s", what), hints...)
}

// Load is a bulk load in progress: what was paused for it. The end of the load resumes that.
type Load struct {
	All       bool     // the switch over all pipelines
	Pipelines []string // named pipelines
}

// Nothing reports whether the load paused nothing, because all was paused before.
func (l *Load) Nothing() bool { return !l.All && len(l.Pipelines) == 0 }

// BeginLoad pauses the named pipelines, or all of them with the switch. What was paused before is not part of the load.
// It also returns the load with an error; the caller must end it.
func (a *Actor) BeginLoad(ctx context.Context, names []string) (l Load, list []Outcome, err error) {
	list, err = a.Do(ctx, Pause, names, Request{})
	for _, o := range list {
		if o.Result != "paused" {
			continue
		}
		_, noted := a.pool.Exec(ctx, "SELECT embedsidecar.note_bulk(nullif($1, ''), $2)", o.Pipeline, a.by)
		err = errors.Join(err, refused(noted))
		if l.All = o.Pipeline == ""; !l.All {
			l.Pipelines = append(l.Pipelines, o.Pipeline)
		}
	}
	return l, list, err
}

// EndLoad resumes what was paused for a load, even if ctx has ended. It retries for a while if the database does not
// answer, since a connection failure may have ended the load.
func (a *Actor) EndLoad(ctx context.Context, l Load) error {
	if l.Nothing() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		_, err := a.Do(ctx, Resume, l.Pipelines, Request{})
		if err == nil {
			return nil
		}
		if problem.Of(err) != problem.Connect || !sleep.For(ctx, pause) {
			way := []string{"embedsidecar resume"}
			for _, name := range l.Pipelines {
				way = append(way, health.Argument(name))
			}
			return problem.New(problem.Of(err), fmt.Errorf("still paused: %w", err), strings.Join(way, " "))
		}
	}
}
