// Package verbs has one row for each thing that a person can have done: pause, resume, retry, requeue and so on. From
// the row come the command, the HTTP route, the form of the dashboard, the word in the audit and the help. What a verb
// does, and its entry of the audit, are in a function of the schema. So a verb needs the database only, and works
// whether a sidecar runs or not; sidecars that run notice within seconds.
package verbs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/spelling"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Scope says what a verb is about.
type Scope int

// The scopes.
const (
	Program   Scope = iota // the whole installation
	Pipelines              // some pipelines
	Switch                 // some pipelines; without any: the switch over all of them
	Rows                   // rows of pipelines: they are counted, and changed in portions
)

// What a verb may take beside the names of pipelines.
const (
	Keys      = "keys"
	Class     = "class"
	Code      = "code"
	OlderThan = "older_than"
	Priority  = "priority"
	For       = "for" // how long
	On        = "on"
)

// arguments are how functions of the schema call what verbs take.
var arguments = map[string]string{
	Keys: "keys => @keys::text[]", Class: "class => @class::text", Code: "code => @code::text",
	OlderThan: "older_than => @older_than::interval", Priority: "priority => @priority::text",
	For: "period => @for::interval", On: `"on" => @on::boolean`,
}

// Verb is a thing that can be done.
type Verb struct {
	Name  string // of the route, the form and, behind the family, of the command
	Group string // tasks: its routes and commands stand together
	Scope Scope
	One   bool     // it takes exactly one pipeline
	Takes []string // beside pipelines
	SQL   string   // its function in the schema
	Done  string   // the word for it where rows were changed; others are given by the function
	Would string   // and of a dry run; "": would_be_ and Done

	Button, Tells string // of the form
	Grave         bool   // the form asks a second time, whatever it is about
	Arguments     string // of the command
	MinArgs       int
	Usage         string // of the command and of the route
	Description   string
}

// Priorities are those that there are, lowest first.
var Priorities = []string{"low", "normal", "high", "urgent"}

// The verbs.
var (
	Pause = &Verb{
		Name: "pause", Scope: Switch, SQL: "pause", Button: "Pause", Arguments: "[PIPELINE...]",
		Usage: "embed nothing until resume; changes are queued meanwhile",
		Tells: "Nothing is embedded until someone resumes. Changes are queued meanwhile, and no writer waits.",
		Description: `Without a name it turns off the switch over all pipelines. What is being embedded at that moment is
finished. To pause twice does no harm; --dry-run shows what would be done.`,
	}
	Resume = &Verb{
		Name: "resume", Scope: Switch, Takes: []string{For}, SQL: "resume", Button: "Resume", Arguments: "[PIPELINE...]",
		Usage: "take back pause, or let a pipeline work for a time whatever its hours are",
		Tells: "Rows are embedded again.",
		Description: `Without a name it turns on the switch over all pipelines; a pipeline that was paused by its name stays
paused. A pipeline with hours of its own (active) works within these; with --for it works at once and for so long, also
if it is paused by its name. Sidecars that run notice within seconds.`,
	}
	Backfill = &Verb{
		Name: "backfill", Scope: Pipelines, SQL: "backfill", Button: "Rescan", Arguments: "[PIPELINE...]",
		Usage: "compare every row now, and embed what is missing or old",
		Tells: "Every row is compared with what was written for it. Rows without a vector of their text are embedded, and no others.",
		Description: `Requests the scan that a new pipeline, a lost slot or an altered table requests by itself: it compares
every row with what was written for it. Only rows that have no vector of their text as it is are embedded, behind live
changes. It begins when a sidecar runs; embedsidecar status shows its progress. --dry-run compares every row now and
reports how many would be embedded, and from a sample of these their tokens (by the model's own tokenizer), the time,
the price (where the model has one in the file) and the space on disk. For that it embeds a few, unless that costs money.`,
	}
	SetPriority = &Verb{
		Name: "priority", Scope: Pipelines, One: true, Takes: []string{Priority}, SQL: "set_priority", Button: "Set priority",
		Usage: "give a pipeline's live changes another priority",
		Tells: "Live changes of the pipeline take this priority from now on. Rows that wait keep theirs.",
	}
	Reembed = &Verb{
		Name: "reembed", Scope: Rows, One: true, Takes: []string{Keys}, SQL: "reembed", Done: "reembed_requested",
		Would: "reembed_would_be_requested", Button: "Embed again", Arguments: "PIPELINE [KEY...]", MinArgs: 1,
		Usage: "embed rows again though their texts did not change",
		Tells: "These rows are embedded again though their texts did not change. Each costs a call of the model.",
		Description: `For vectors that are not trusted any more. Every row of the pipeline, or these rows alone, are sent to
the embedder again: no stored or remembered vector is used. The vectors stay until the new ones come. A running sidecar
does it; embedsidecar wait --caught-up waits for it. --dry-run counts the rows.`,
	}
	Retry = &Verb{
		Name: "retry", Group: "tasks", Scope: Rows, Takes: []string{Keys, Class, Code, OlderThan}, SQL: "retry_failed",
		Done: "retried", Button: "Retry", Arguments: "[PIPELINE...] | PIPELINE KEY...",
		Usage: "try dead letters again at once, and rows that wait for another try",
		Tells: "These rows are tried again at once, with all their attempts.",
		Description: `Takes the dead letters of these pipelines, or of all, or of these rows alone, and puts them back into the
queue with all their attempts. Rows that wait for their next try do not wait any longer. Thousands are done in portions:
when it is interrupted, what was done stays done. --dry-run counts the rows.`,
	}
	Requeue = &Verb{
		Name: "requeue", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys}, SQL: "requeue", Done: "requeued",
		Button: "Requeue", Arguments: "PIPELINE [KEY...]", MinArgs: 1,
		Usage: "re-queue rows, or all cancelled rows",
		Tells: "These rows are compared again. A row that needs nothing is not embedded.",
		Description: `A row that needs nothing is not embedded; embedsidecar reembed embeds it anyway. --dry-run counts the
rows.`,
	}
	Cancel = &Verb{
		Name: "cancel", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys}, SQL: "cancel", Done: "cancelled",
		Button: "Cancel", Arguments: "PIPELINE KEY...", MinArgs: 2,
		Usage: "take rows out of the queue",
		Tells: "These rows leave the queue. They are reported as cancelled until they change or someone re-queues them.",
		Description: `The rows are not embedded until they change, a scan finds that they differ, or embedsidecar tasks
requeue takes them back; status, wait and explain report them as cancelled. What is being embedded at that moment is
finished. --dry-run counts the rows.`,
	}
	Discard = &Verb{
		Name: "discard", Group: "tasks", Scope: Rows, Takes: []string{Keys, Class, Code, OlderThan}, SQL: "discard_dead",
		Done: "discarded", Button: "Discard", Grave: true, Arguments: "PIPELINE... | PIPELINE KEY...", MinArgs: 1,
		Usage: "put dead letters away, so that they count as cancelled",
		Tells: "These dead letters are reported as cancelled. Their rows get no vector until they change or someone re-queues them.",
		Description: `They keep their error, and status, wait and explain report them as cancelled until the row changes or
embedsidecar tasks requeue takes them back. --dry-run counts the rows.`,
	}
	Prioritise = &Verb{
		Name: "prioritise", Group: "tasks", Scope: Rows, One: true, Takes: []string{Keys, Priority}, SQL: "prioritise",
		Done: "prioritised", Button: "Prioritise", Arguments: "PIPELINE PRIORITY [KEY...]", MinArgs: 2,
		Usage: "give rows that wait another priority, or all of a pipeline that do",
		Tells: "These rows, as far as they wait, take this priority: behind what waits there, in the order that they had.",
		Description: `low, normal, high or urgent. Without keys it is the priority of changes from now on: rows that wait keep
theirs, and a configuration with another one takes it back at the next run. With keys, or --waiting, it is the priority
of rows that wait, and of nothing else. --dry-run counts the rows.`,
	}
	Notify = &Verb{
		Name: "notify", Scope: Program, Takes: []string{On}, SQL: "notify_changes", Arguments: "on | off", MinArgs: 1,
		Usage: "turn notifications of what happens (LISTEN embedsidecar_changes) on or off",
		Description: `Off at first. When they are on, LISTEN embedsidecar_changes reports what is paused or resumed, dead letters,
scans, streams and embedders, without keys or texts, to every role that may connect to the database: docs/sql.md.
--dry-run shows what would be done.`,
	}
)

// All are the verbs.
var All = []*Verb{
	Pause, Resume, Backfill, Reembed, Notify, Retry, Requeue, Cancel, Discard, Prioritise, SetPriority,
}

// ByName returns the verb of a name; nil: there is none.
func ByName(name string) *Verb {
	if at := slices.IndexFunc(All, func(v *Verb) bool { return v.Name == name }); at >= 0 {
		return All[at]
	}
	return nil
}

// OfAll reports whether a verb may be asked for without names of pipelines.
func (v *Verb) OfAll() bool {
	return v.Scope == Switch || v.Scope == Program || v.Scope == Rows && v.MinArgs == 0
}

// Has reports whether a verb takes something.
func (v *Verb) Has(what string) bool { return slices.Contains(v.Takes, what) }

// query calls the function of a verb.
func (v *Verb) query() string {
	list := []string{"dry_run => @dry_run::boolean", "said_by => @said_by::text"}
	for _, what := range v.Takes {
		list = append(list, arguments[what])
	}
	if v.Scope != Program {
		list = append(list, "pipeline => @pipeline::text")
	}
	if v.Scope != Rows {
		return fmt.Sprintf("SELECT embedsidecar.%s(%s)", v.SQL, strings.Join(list, ", "))
	}
	list = append(list, "max_rows => @max_rows::integer", "continues => @continues::bigint")
	return fmt.Sprintf("SELECT changed, remaining, audit_id FROM embedsidecar.%s(%s)", v.SQL, strings.Join(list, ", "))
}

// result is the word for what became of so many rows.
func (v *Verb) result(rows int64, dry bool) string {
	switch {
	case rows == 0:
		return "nothing_to_" + v.Name
	case dry && v.Would != "":
		return v.Would
	case dry:
		return "would_be_" + v.Done
	}
	return v.Done
}

// check returns what is wrong with a request of so many pipelines.
func (v *Verb) check(pipelines int, r *Request) error {
	for what, given := range map[string]bool{
		Keys: len(r.Keys) > 0, Class: r.Class != "", Code: r.Code != "", OlderThan: r.OlderThan != 0,
		Priority: r.Priority != "", For: r.For != nil, On: r.On,
	} {
		if given && !v.Has(what) {
			return misuse(fmt.Sprintf("%s takes no %s", v.Name, what))
		}
	}
	if v.Has(Priority) && !slices.Contains(Priorities, r.Priority) {
		return misuse(fmt.Sprintf("there is no priority %q", r.Priority), spelling.DidYouMean(r.Priority, Priorities)...)
	}
	if pipelines != 1 && (v.One || len(r.Keys) > 0 || r.Continues != 0 || r.For != nil) {
		return misuse(v.Name + " takes one pipeline: keys, times and numbers of entries are those of one")
	}
	return nil
}

func misuse(what string, hints ...string) error {
	return problem.New(problem.Usage, fmt.Errorf("%s", what), hints...)
}
