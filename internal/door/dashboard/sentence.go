package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// sentence is the state of an installation in one sentence, with the next step.
type sentence struct {
	Tone, Text, Detail string
	Next               string // what to do, in words
	Step               step
}

// step is what to do next: a button, and commands.
type step struct {
	Pipeline string
	Do, Name string // action and label of the button; "": no button
	For      string // a duration
	Link     string // a page with details
	Commands []string
}

// besides returns the hints that are not among the step's commands.
func (s *step) besides(hints []string) []string {
	return slices.DeleteFunc(slices.Clone(hints), func(hint string) bool {
		return slices.ContainsFunc(s.Commands, func(c string) bool { return strings.HasPrefix(c, hint) })
	})
}

// stepOf returns what to do about the state of a pipeline.
func stepOf(p *observe.Pipeline) (s step) {
	s.Pipeline = p.Name
	name := health.Argument(p.Name)
	switch p.State {
	case health.RowsFailed, health.Failing:
		s.Do, s.Name, s.Link = "retry", "Retry failed…", linkTo("/queue", "pipeline", p.Name, "state", "failed")
		which := "--state failed "
		if p.State == health.Failing { // most of them are to be retried
			which += "--state retrying "
		}
		s.Commands = []string{"embedsidecar tasks list " + which + name, "embedsidecar tasks retry " + name}
	case health.RowsCancelled:
		s.Do, s.Name, s.Link = "requeue", "Requeue cancelled…", linkTo("/queue", "pipeline", p.Name, "state", "cancelled")
		s.Commands = []string{"embedsidecar tasks requeue " + name}
	case health.Paused:
		s.Do, s.Name, s.Commands = "resume", "Resume", []string{"embedsidecar resume " + name}
		if slices.Contains(p.Hints, "embedsidecar resume") { // the switch paused all of them
			s.Pipeline, s.Name = "", "Resume all…"
		}
		if len(p.Hints) > 0 { // each is a command or a statement
			s.Commands = p.Hints
		}
	case health.OutsideHours:
		s.Do, s.Name, s.For = "resume", "Work for 1 hour", "1h"
		s.Commands = []string{"embedsidecar resume " + name + " --for 1h"}
	case health.BudgetSpent: // until it is raised in the file
		s.Link, s.Commands = "/config", []string{"embedsidecar reload"}
	case health.NoSidecar, health.StandbyOnly, health.Disabled:
		s.Link, s.Commands = "/system", []string{"embedsidecar run"}
	case health.Misconfigured, health.Unpublished, health.NotSetUp, health.Replaced:
		s.Link, s.Commands = "/checks", []string{"embedsidecar check", "embedsidecar init"}
	case health.Missing:
		s.Link, s.Commands = "/checks", []string{"embedsidecar init", "embedsidecar uninstall " + name}
	case health.Copied:
		s.Link, s.Commands = "/system", []string{"embedsidecar init --adopt"}
	case health.PluginDown, health.PluginUnknown:
		s.Link, s.Commands = "/models", []string{"embedsidecar check"}
	case health.OtherModel:
		s.Link, s.Commands = "/models", []string{"embedsidecar model change " + name + " --dry-run"}
	case health.SlotLost:
		s.Link = "/system"
		s.Commands = []string{"embedsidecar run", "embedsidecar run --set slot.on_lost=reconcile"}
	case health.StreamStuck:
		s.Link, s.Commands = "/system", []string{"embedsidecar check"}
	case health.SlotWaiting, health.ScanWaiting, health.QueueHeld:
		s.Commands = ends(p.WaitsFor)
	case health.Otherwise:
		s.Link, s.Commands = "/config", []string{"embedsidecar plan"}
	case health.Backfill, health.Comparing, health.Working:
		s.Commands = []string{"embedsidecar status --watch " + name}
	case health.Unacknowledged, health.UpToDate: // nothing to do
	}
	return s
}

// ends returns statements that end the blocking transactions, or list them.
func ends(by []database.Blocker) (list []string) {
	for _, b := range by[:min(3, len(by))] {
		if b.PID != 0 {
			list = append(list, fmt.Sprintf("SELECT pg_terminate_backend(%d);", b.PID))
		}
	}
	if len(list) == 0 {
		list = []string{"SELECT pid, xact_start, state, query FROM pg_stat_activity WHERE xact_start < now() - interval '1 min';"}
	}
	return list
}

// worst sorts tones by urgency.
var worst = []string{"bad", "warn", "busy", "good"}

// How long a state that ends by itself may take before a user should look. The age is that of the alert on the oldest
// task.
const (
	mostBlocked = time.Minute
	mostWaited  = 15 * time.Minute
)

// uneasy returns why a user should look at a pipeline whose state should end by itself; nil: no reason. Its Text
// follows the pipeline's name.
func uneasy(p *observe.Pipeline) *sentence {
	if tone := toneOf(p); tone != "busy" && tone != "good" {
		return nil
	}
	name := health.Argument(p.Name)
	switch {
	case blocked(p.WaitsFor):
		return &sentence{Tone: "warn", Text: p.State.Word(), Detail: capital(p.Reason) + ".", Next: wording.Joined(p.Hints)}
	case p.Retrying > 0:
		s := sentence{
			Tone: "warn", Text: "rows fail and are retried",
			Detail: wording.Count(p.Retrying, "row") + " failed and will be retried.",
			Next:   "embedsidecar tasks list --state retrying " + name + " shows the errors; fix the cause, and the rows continue",
		}
		at := slices.IndexFunc(p.Errors, func(g report.ErrorGroup) bool { return g.State == "retrying" })
		if at >= 0 {
			g := &p.Errors[at]
			s.Detail += fmt.Sprintf(" One of them, %s: %s %s: %s", g.Key, g.Class, g.Code, g.Message)
		}
		return &s
	case p.OldestSeconds != nil && *p.OldestSeconds > mostWaited.Seconds():
		return &sentence{
			Tone: "warn", Text: "a row has waited for " + wording.Age(*p.OldestSeconds),
			Detail: capital(p.Reason) + ".",
			Next:   "embedsidecar status --watch " + name + " shows whether the backlog shrinks; runbook: vectors are late",
		}
	}
	return nil
}

// blocked reports whether a blocking transaction is older than mostBlocked, or of unknown age: not every role can see
// the age of another role's transaction.
func blocked(by []database.Blocker) bool {
	return slices.ContainsFunc(by, func(b database.Blocker) bool {
		return b.AgeSeconds == nil || *b.AgeSeconds > mostBlocked.Seconds()
	})
}

// toneFor is the tone of a pipeline by its state and by uneasy.
func toneFor(p *observe.Pipeline) string {
	if s := uneasy(p); s != nil {
		return s.Tone
	}
	return toneOf(p)
}

// unwell returns the pipelines whose rows all wait for a user's action.
func unwell(all []observe.Pipeline) []observe.Pipeline {
	var list []observe.Pipeline
	for i := range all {
		if toneOf(&all[i]) == "bad" {
			list = append(list, all[i])
		}
	}
	return list
}

// sentenceOf returns the state of an installation.
func sentenceOf(state *observe.Database) sentence {
	if len(state.Pipelines) == 0 {
		return sentence{
			Tone: "warn", Text: "No pipeline is set up yet.",
			Detail: "A pipeline embeds columns of a table, and keeps the vectors in sync with its rows.",
			Step:   step{Commands: []string{"embedsidecar init --table public.docs --columns title,body --into embedding"}},
		}
	}
	list := make([]*observe.Pipeline, len(state.Pipelines))
	for i := range state.Pipelines {
		list[i] = &state.Pipelines[i]
	}
	tone := toneFor
	slices.SortStableFunc(list, func(a, b *observe.Pipeline) int {
		return cmp.Compare(slices.Index(worst, tone(a)), slices.Index(worst, tone(b)))
	})
	first := list[0]
	if refused := refusedWith(state); refused != nil && tone(first) != "bad" {
		return *refused
	}
	switch tone(first) {
	case "good":
		return wellWith(list)
	case "busy":
		return busyWith(list)
	}
	same := 0
	for _, p := range list {
		if tone(p) == tone(first) {
			same++
		}
	}
	s := sentence{
		Tone: tone(first), Text: first.State.Word(), Detail: capital(first.Reason) + ".",
	}
	if u := uneasy(first); u != nil {
		s = *u
	}
	s.Step = stepOf(first)
	s.Next = cmp.Or(s.Next, wording.Joined(s.Step.besides(first.Hints)))
	switch {
	case len(list) == 1, same == 1 && s.Tone == "bad" && tone(list[1]) == "warn":
		s.Text = fmt.Sprintf("%s: %s.", first.Name, s.Text)
	case same == 1:
		s.Text = fmt.Sprintf("%s: %s. The others are well.", first.Name, s.Text)
	default:
		s.Text = fmt.Sprintf("%d of %s need attention. First %s: %s.", same, wording.Count(int64(len(list)), "pipeline"),
			first.Name, s.Text)
	}
	return s
}

// refusedWith returns the sentence for a rejected configuration.
func refusedWith(state *observe.Database) *sentence {
	for i := range state.Configuration {
		if c := &state.Configuration[i]; c.State == "refused" {
			return &sentence{
				Tone: "warn", Text: "A changed configuration was refused. The previous one stays in force.",
				Detail: c.Line(), Next: wording.Joined(c.Hints),
			}
		}
	}
	return nil
}

// wellWith returns the sentence if there is nothing to do.
func wellWith(list []*observe.Pipeline) sentence {
	for _, p := range list {
		if left := p.Rows - p.Known; left > 0 && !p.RowsEstimated {
			return sentence{
				Tone: "busy", Text: "Every known row is done.",
				Detail: p.Name + ": " + wording.Count(left, "row") + " not processed yet.",
				Next:   "if this persists, embedsidecar verify " + health.Argument(p.Name) + " shows which and why",
			}
		}
	}
	return sentence{
		Tone: "good", Text: "All is well.",
		Detail: wording.Count(int64(len(list)), "pipeline") + ": every known row has its vector.",
	}
}

// busyWith returns the sentence if work is in progress.
func busyWith(list []*observe.Pipeline) sentence {
	var open int64
	for _, p := range list {
		open += p.Open()
	}
	s := sentence{
		Tone: "busy", Text: "All is well; work is in progress.",
		Detail: wording.Count(open, "row") + " wait or are being embedded.",
	}
	at := slices.IndexFunc(list, func(p *observe.Pipeline) bool {
		return p.State == health.BudgetSpent || p.State == health.OutsideHours
	})
	switch {
	case at >= 0: // intended, but nothing is embedded
		s.Text = fmt.Sprintf("%s: %s.", list[at].Name, list[at].State.Word())
		s.Detail, s.Next = capital(list[at].Reason)+".", wording.Joined(list[at].Hints)
	case list[0].State != health.Working:
		s.Detail = list[0].Name + ": " + list[0].Reason + "."
	}
	return s
}
