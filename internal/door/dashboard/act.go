package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// choice selects tasks, in the URL of a page and in the fields of a form.
type choice struct {
	Pipeline, State, Class, Code, Key, Older string
	After                                    string // the cursor of the previous page
}

func choiceOf(values url.Values) choice {
	c := choice{
		Pipeline: values.Get("pipeline"), State: values.Get("state"), Class: values.Get("class"),
		Code: values.Get("code"), Key: values.Get("key"), Older: values.Get("older"), After: values.Get("after"),
	}
	return c
}

// filter returns the filter of tasks.
func (c choice) filter() (f report.TaskFilter, err error) {
	f = report.TaskFilter{Class: c.Class, Code: c.Code}
	if c.State != "" {
		f.States = []string{c.State}
	}
	if c.Key != "" {
		f.Keys = []string{c.Key}
	}
	if c.Older != "" {
		if f.OlderThan, err = time.ParseDuration(c.Older); err != nil || f.OlderThan < 0 {
			return f, misuse("that is not an age", "write it as 90s, 10m or 24h")
		}
	}
	return f, nil
}

// pipelines returns the name of the chosen pipeline, or nil.
func (c choice) pipelines() []string {
	if c.Pipeline == "" {
		return nil
	}
	return []string{c.Pipeline}
}

// Link returns the URL of a page of the selected tasks.
func (c choice) Link(path string) string {
	return linkTo(path, "pipeline", c.Pipeline, "state", c.State, "class", c.Class, "code", c.Code, "key", c.Key,
		"older", c.Older, "after", c.After)
}

// With returns the URL of a page of the tasks in another state.
func (c choice) With(path, state string) string {
	c.State, c.After = state, ""
	return c.Link(path)
}

// Of returns the same choice within one pipeline.
func (c choice) Of(pipeline string) choice {
	c.Pipeline = pipeline
	return c
}

// Aged returns the same choice by pipeline and age alone.
func (c choice) Aged() choice { return choice{Pipeline: c.Pipeline, Older: c.Older} }

// Next returns the URL of the next page.
func (c choice) Next(path, after string) string {
	c.After = after
	return c.Link(path)
}

// misuse is the error of an invalid form or URL.
func misuse(detail string, hints ...string) error {
	return gate.Wrong("", detail, hints...)
}

// wish is the request of a form.
type wish struct {
	Verb    *verbs.Verb
	Choice  choice // selects the rows
	Request verbs.Request
	Back    string
}

// wishOf reads a form.
func wishOf(r *http.Request) (wish, error) {
	f := wish{Verb: verbs.ByName(r.PostFormValue("do")), Choice: choiceOf(r.PostForm), Back: r.PostFormValue("back")}
	if f.Verb == nil {
		return f, misuse("there is no such action")
	}
	of, err := f.Choice.filter()
	if err != nil {
		return f, err
	}
	f.Request = verbs.Request{
		Class: of.Class, Code: of.Code, OlderThan: of.OlderThan,
		Keys: slices.DeleteFunc(slices.Clone(r.PostForm["key"]), func(k string) bool { return k == "" }),
	}
	if f.Verb.Has(verbs.Priority) { // the form of selected rows has the field for one of its buttons
		f.Request.Priority = r.PostFormValue("priority")
	}
	if how := r.PostFormValue("for"); how != "" {
		d, err := time.ParseDuration(how)
		if err != nil || d < 0 {
			return f, misuse("that is not a duration", "write it as 30m or 2h")
		}
		f.Request.For = &d
	}
	switch keys := f.Request.Keys; {
	case slices.ContainsFunc(keys, func(k string) bool { return len(k) > mostKeySize }):
		return f, misuse("a key is too long")
	case f.Verb == verbs.Cancel && len(keys) == 0:
		return f, misuse("no row is chosen", "tick the rows first")
	case f.Choice.Pipeline == "" && (len(keys) > 0 || !f.Verb.OfAll()):
		return f, misuse("no pipeline is chosen", "choose the pipeline first")
	}
	return f, nil
}

// confirms reports whether the action needs a confirmation: it discards something, or applies to all matching rows, or
// to all pipelines.
func (f *wish) confirms() bool {
	return f.Verb.Grave || f.Verb.Scope == verbs.Rows && len(f.Request.Keys) == 0 ||
		f.Verb.Scope == verbs.Switch && f.Choice.Pipeline == ""
}

// confirmation is the data of the confirmation page.
type confirmation struct {
	wish

	Rows   int64
	OfRows bool
	Type   string // the text to type
	Meant  []string
	Again  string // why it is shown again
}

// act performs the action of a form, and redirects to the page of the form.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	told, ask, err := d.acted(r)
	switch {
	case err != nil:
		d.render(w, r, d.failed(r.Context(), err))
	case ask != nil:
		d.render(w, r, view{page: "confirm", title: ask.Verb.Button, data: ask})
	default:
		who, _ := gate.CallerOf(r.Context())
		d.notices.tell(who, told)
		http.Redirect(w, r, d.at(back(r)), http.StatusSeeOther) //nolint:gosec // back leads to pages of ours alone
	}
}

// acted performs the action of a form, or returns the confirmation to ask for first. It rejects a user without the
// right before that.
func (d *Dashboard) acted(r *http.Request) (told string, ask *confirmation, err error) {
	if err := d.o.Service.MayChange(r.Context()); err != nil {
		return "", nil, err
	}
	if err := r.ParseForm(); err != nil {
		return "", nil, misuse("the form cannot be read")
	}
	f, err := wishOf(r)
	if err != nil {
		return "", nil, err
	}
	if f.confirms() {
		if ask, err = d.confirm(r, &f); err != nil || ask != nil {
			return "", ask, err
		}
	}
	if f.Verb.Scope == verbs.Rows {
		f.Request.Limit = math.MaxInt64
	}
	acted, err := d.o.Service.Act(r.Context(), f.Verb, f.Choice.pipelines(), f.Request)
	return f.told(acted.Outcomes), nil, err
}

// confirm returns the confirmation that an action needs; nil: it was given. It counts the rows now: if there are more
// than the user has seen, it asks again.
func (d *Dashboard) confirm(r *http.Request, f *wish) (*confirmation, error) {
	ask := &confirmation{
		wish: *f, OfRows: f.Verb.Scope == verbs.Rows, Meant: f.words(), Type: f.Verb.Name + " all",
	}
	if ask.OfRows {
		trial := f.Request
		trial.DryRun = true
		counted, err := d.o.Service.Act(r.Context(), f.Verb, f.Choice.pipelines(), trial)
		if err != nil {
			return nil, err
		}
		for _, o := range counted.Outcomes {
			ask.Rows += o.Rows
		}
		ask.Type = strconv.FormatInt(ask.Rows, 10)
	}
	if !r.PostForm.Has("expected") {
		return ask, nil
	}
	typed := strings.TrimSpace(r.PostFormValue("typed"))
	expected, _ := strconv.ParseInt(r.PostFormValue("expected"), 10, 64)
	switch {
	case ask.OfRows && ask.Rows > expected:
		ask.Again = fmt.Sprintf("There are now %s, not %s.", number(ask.Rows), number(expected))
		return ask, nil
	case ask.OfRows && strings.ReplaceAll(typed, ",", "") != strconv.FormatInt(expected, 10),
		!ask.OfRows && typed != ask.Type:
		ask.Again = "The typed text does not match."
		return ask, nil
	}
	return nil, nil
}

// words describes what an action applies to.
func (f *wish) words() []string {
	list := []string{"all pipelines"}
	if f.Choice.Pipeline != "" {
		list[0] = "pipeline " + f.Choice.Pipeline
	}
	for _, of := range [][2]string{
		{"priority", f.Request.Priority}, {"class", f.Choice.Class}, {"code", f.Choice.Code}, {"older than", f.Choice.Older},
	} {
		if of[1] != "" {
			list = append(list, of[0]+" "+of[1])
		}
	}
	switch n := len(f.Request.Keys); {
	case n > 3: //nolint:mnd // as many as are readable at a glance
		list = append(list, fmt.Sprintf("%d chosen rows", n))
	case n > 0:
		list = append(list, "key "+strings.Join(f.Request.Keys, ", "))
	}
	return list
}

// told describes the result in one sentence.
func (f *wish) told(list []verbs.Outcome) string {
	var told []string
	for _, o := range list {
		switch name := cmp.Or(o.Pipeline, "all pipelines"); {
		case f.Verb.Scope != verbs.Rows:
			told = append(told, name+": "+strings.ReplaceAll(o.Result, "_", " "))
		case o.Rows > 0 || len(list) == 1:
			told = append(told, fmt.Sprintf("%s: %s %s", name, f.Verb.Name, wording.Count(o.Rows, "row")))
		}
	}
	return cmp.Or(strings.Join(told, "; "), "No row matched.")
}

// back returns the page of the dashboard that a form was on, or the overview.
func back(r *http.Request) string {
	to := r.PostFormValue("back")
	u, err := url.Parse(to) // rejects tabs and other characters that browsers remove
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || slices.Contains(strings.Split(u.Path, "/"), "..") ||
		!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsFunc(to, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) {
		to = "/"
	}
	return to
}
