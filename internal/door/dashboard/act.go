package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// deed is what a form asks for.
type deed struct {
	Verb     string
	Pipeline string // "": all of them, where the verb takes that
	Filter   report.TaskFilter
	Choice   choice // what Filter was made of
	Priority string
	For      *time.Duration // to resume for, whatever the hours are
	Back     string
}

// verbs are what can be done, each with its word for a button and the sentence that tells what it does.
var verbs = map[string]struct{ Name, Tells string }{
	"pause":      {"Pause", "Nothing is embedded until somebody resumes. Changes are queued meanwhile, and nobody who writes waits."},
	"resume":     {"Resume", "Rows are embedded again."},
	"backfill":   {"Compare every row", "Every row is compared with what was written for it. Those that have no vector of their text are embedded, and no others."},
	"priority":   {"Set priority", "Live changes of the pipeline take this lane from now on. What waits keeps its own."},
	"retry":      {"Retry", "These rows are tried again at once, with all their tries."},
	"requeue":    {"Requeue", "These rows are looked at again. A look at a row that needs nothing embeds nothing."},
	"reembed":    {"Embed anew", "These rows are embedded again though their texts are what they were. Each costs a call of the model."},
	"prioritise": {"Prioritise", "These rows, as far as they wait, take this lane: behind what waits there, in the order that they had."},
	"cancel":     {"Cancel", "These rows leave the queue, and are told as cancelled, until they change or somebody requeues them."},
	"discard":    {"Discard", "These dead letters are told as cancelled. Their rows keep no vector until they change or somebody requeues them."},
}

// deedOf reads a form.
func deedOf(r *http.Request) (deed, error) {
	c := choiceOf(r.PostForm)
	d := deed{
		Verb: r.PostFormValue("do"), Pipeline: c.Pipeline, Priority: r.PostFormValue("priority"),
		Back: r.PostFormValue("back"), Choice: c,
	}
	if _, ok := verbs[d.Verb]; !ok {
		return d, misuse("there is no such action")
	}
	c.State = ""
	if d.Verb != "priority" && d.Verb != "prioritise" { // the form of chosen rows has it for one button of several
		d.Priority = ""
	}
	var err error
	if how := r.PostFormValue("for"); how != "" {
		if d.For, err = duration(how); err != nil {
			return d, err
		}
	}
	if d.Filter, err = c.filter(); err != nil {
		return d, err
	}
	d.Filter.Keys = slices.DeleteFunc(slices.Clone(r.PostForm["key"]), func(k string) bool { return k == "" })
	switch {
	case slices.ContainsFunc(d.Filter.Keys, func(k string) bool { return len(k) > mostKeySize }):
		return d, misuse("a key is too long")
	case d.Verb == "cancel" && len(d.Filter.Keys) == 0:
		return d, misuse("no row is chosen", "tick the rows first")
	case d.Pipeline == "" && len(d.Filter.Keys) > 0:
		return d, misuse("keys are those of one pipeline", "choose the pipeline first")
	case d.Pipeline == "" && !slices.Contains([]string{"pause", "resume", "retry"}, d.Verb):
		return d, misuse("no pipeline is chosen", "choose the pipeline first")
	}
	return d, nil
}

// confirms reports whether somebody must say a second time that he means it: what is put away, what is about all that
// match, and what is about everything.
func (d *deed) confirms() bool {
	switch d.Verb {
	case "discard":
		return true
	case "retry", "requeue", "reembed", "cancel", "prioritise":
		return len(d.Filter.Keys) == 0
	case "pause", "resume":
		return d.Pipeline == ""
	}
	return false
}

func duration(s string) (*time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return nil, misuse("that is no time", "write it as 30m or 2h")
	}
	return &d, nil
}

// ofRows reports whether the action is about rows, which can be counted.
func (d *deed) ofRows() bool {
	return !slices.Contains([]string{"pause", "resume", "backfill", "priority"}, d.Verb)
}

// confirmation is the page that asks whether somebody means it.
type confirmation struct {
	Deed        deed
	Name, Tells string
	Rows        int64
	OfRows      bool
	Type        string // what is to be typed
	Meant       []string
	Again       string // why he is asked once more
}

// act does what a form asks for, and leads back to where the form was.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	wanted, err := d.wanted(r)
	if err == nil {
		var ask *confirmation
		if ask, err = d.confirm(r, &wanted); err == nil && ask != nil {
			d.render(w, r, view{page: "confirm", title: ask.Name, data: ask})
			return
		}
	}
	var told string
	if err == nil {
		told, err = d.do(r.Context(), &wanted)
	}
	if err != nil {
		d.render(w, r, d.failed(r.Context(), err))
		return
	}
	who, _ := gate.CallerOf(r.Context())
	d.notices.tell(who, told)
	http.Redirect(w, r, d.at(back(r)), http.StatusSeeOther) //nolint:gosec // back leads to pages of ours alone
}

// wanted reads what a form asks for, of somebody who may: he is refused before he is asked whether he means it.
func (d *Dashboard) wanted(r *http.Request) (deed, error) {
	if err := d.o.Service.MayChange(r.Context()); err != nil {
		return deed{}, err
	}
	if err := r.ParseForm(); err != nil {
		return deed{}, misuse("the form cannot be read")
	}
	return deedOf(r)
}

// confirm returns what is to be asked before an action is done; nil: nothing, or it was answered. Rows are counted now:
// if there are more than somebody was told of, he is told anew.
func (d *Dashboard) confirm(r *http.Request, wanted *deed) (*confirmation, error) {
	if !wanted.confirms() {
		return nil, nil
	}
	ask := &confirmation{
		Deed: *wanted, Name: verbs[wanted.Verb].Name, Tells: verbs[wanted.Verb].Tells, OfRows: wanted.ofRows(),
		Meant: wanted.words(), Type: wanted.Verb + " all",
	}
	if ask.OfRows {
		rows, err := d.count(r.Context(), wanted)
		if err != nil {
			return nil, err
		}
		ask.Rows, ask.Type = rows, strconv.FormatInt(rows, 10)
	}
	typed := strings.TrimSpace(r.PostFormValue("typed"))
	if !r.PostForm.Has("expected") {
		return ask, nil
	}
	expected, _ := strconv.ParseInt(r.PostFormValue("expected"), 10, 64)
	switch {
	case ask.OfRows && ask.Rows > expected:
		ask.Again = fmt.Sprintf("There are more now: %s, and it was %s.", number(ask.Rows), number(expected))
		return ask, nil
	case ask.OfRows && strings.ReplaceAll(typed, ",", "") != strconv.FormatInt(expected, 10),
		!ask.OfRows && typed != ask.Type:
		ask.Again = "That is not what was to be typed."
		return ask, nil
	}
	return nil, nil
}

// words are what an action is about.
func (d *deed) words() []string {
	var list []string
	add := func(name, value string) {
		if value != "" {
			list = append(list, name+" "+value)
		}
	}
	if d.Pipeline == "" {
		list = append(list, "all pipelines")
	}
	add("pipeline", d.Pipeline)
	add("priority", d.Priority)
	add("class", d.Choice.Class)
	add("code", d.Choice.Code)
	add("older than", d.Choice.Older)
	switch n := len(d.Filter.Keys); {
	case n > 3: //nolint:mnd // as many as one reads at a glance
		list = append(list, fmt.Sprintf("%d chosen rows", n))
	case n > 0:
		list = append(list, "key "+strings.Join(d.Filter.Keys, ", "))
	}
	return list
}

// count tells how many rows an action would change.
func (d *Dashboard) count(ctx context.Context, wanted *deed) (rows int64, err error) {
	acted, err := d.o.Service.Act(ctx, wanted.action(wanted.pipelines(), true))
	for _, o := range acted.Outcomes {
		if o.Rows != nil && o.Rows.Matched != nil {
			rows += *o.Rows.Matched
		}
	}
	return rows, err
}

func (d *deed) pipelines() []string {
	if d.Pipeline == "" {
		return nil
	}
	return []string{d.Pipeline}
}

// action is what the Service is asked for.
func (d *deed) action(pipelines []string, dry bool) admin.Action {
	const most = 100_000 // rows in one request; what is left is asked for anew
	a := admin.Action{
		Verb: admin.Verb(d.Verb), Pipelines: pipelines, Filter: d.Filter, Priority: d.Priority, For: d.For, DryRun: dry,
	}
	if d.ofRows() {
		a.Limit = most
	}
	return a
}

// do does it, and tells what was done.
func (d *Dashboard) do(ctx context.Context, wanted *deed) (string, error) {
	if !wanted.ofRows() {
		acted, err := d.o.Service.Act(ctx, wanted.action(wanted.pipelines(), false))
		told := make([]string, len(acted.Outcomes))
		for i, o := range acted.Outcomes {
			told[i] = cmp.Or(o.Pipeline, "all pipelines") + ": " + strings.ReplaceAll(o.Result, "_", " ")
		}
		return strings.Join(told, "; "), err
	}
	names := wanted.pipelines()
	if len(names) == 0 {
		var err error
		if names, err = d.names(ctx); err != nil {
			return "", err
		}
	}
	var told []string
	for _, name := range names {
		rows, err := d.all(ctx, wanted.action([]string{name}, false))
		if err != nil {
			return "", err
		}
		if rows > 0 || len(names) == 1 {
			told = append(told, fmt.Sprintf("%s: %s %s", name, wanted.Verb, wording.Count(rows, "row")))
		}
	}
	if len(told) == 0 {
		return "There was no such row.", nil
	}
	return strings.Join(told, "; "), nil
}

// all has an action done until no row is left for it, and returns how many rows it has changed.
func (d *Dashboard) all(ctx context.Context, a admin.Action) (rows int64, err error) {
	for {
		acted, err := d.o.Service.Act(ctx, a)
		if err != nil || len(acted.Outcomes) == 0 || acted.Outcomes[0].Rows == nil {
			return rows, err
		}
		p := acted.Outcomes[0].Rows
		rows += p.Changed
		if p.Changed == 0 || p.AuditID == 0 || p.Remaining != nil && *p.Remaining == 0 {
			return rows, nil
		}
		a.Continues = p.AuditID
	}
}
