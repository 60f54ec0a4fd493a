package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
)

// wish is what a form asks for.
type wish struct {
	Verb    *verbs.Verb
	Choice  choice // which rows
	Request verbs.Request
	Back    string
}

// wishOf reads a form.
func wishOf(r *http.Request) (wish, error) {
	f := wish{Verb: verbs.ByName(r.PostFormValue("do")), Choice: choiceOf(r.PostForm), Back: r.PostFormValue("back")}
	if f.Verb == nil || f.Verb.Scope == verbs.Program {
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
	if f.Verb.Has(verbs.Priority) { // the form of chosen rows has it for one button of several
		f.Request.Priority = r.PostFormValue("priority")
	}
	if how := r.PostFormValue("for"); how != "" {
		d, err := time.ParseDuration(how)
		if err != nil || d < 0 {
			return f, misuse("that is no time", "write it as 30m or 2h")
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

// confirms reports whether the user must say a second time that he means it: what is put away, what is about all rows
// that match, and what is about everything.
func (f *wish) confirms() bool {
	return f.Verb.Grave || f.Verb.Scope == verbs.Rows && len(f.Request.Keys) == 0 ||
		f.Verb.Scope == verbs.Switch && f.Choice.Pipeline == ""
}

// confirmation is the page that asks whether the user means it.
type confirmation struct {
	wish

	Rows   int64
	OfRows bool
	Type   string // what is to be typed
	Meant  []string
	Again  string // why he is asked once more
}

// act does what a form asks for, and leads back to where the form was.
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

// acted does what a form asks for and returns what was done, or what is to be asked first. A user who may not is
// refused before he is asked.
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

// confirm returns what is to be asked before an action is done; nil: it was answered. Rows are counted now: if there
// are more than the user was told of, he is asked again.
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
	case n > 3: //nolint:mnd // as many as one reads at a glance
		list = append(list, fmt.Sprintf("%d chosen rows", n))
	case n > 0:
		list = append(list, "key "+strings.Join(f.Request.Keys, ", "))
	}
	return list
}

// told is what was done, in a sentence.
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
	return cmp.Or(strings.Join(told, "; "), "There was no such row.")
}
