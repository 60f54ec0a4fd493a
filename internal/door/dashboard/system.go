package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

func (d *Dashboard) models(r *http.Request) (view, error) {
	plugins, folders, err := d.o.Service.Named(r.Context())
	if err != nil {
		return view{}, err
	}
	running, err := d.o.Service.Plugins(r.Context())
	if err != nil {
		return view{}, err
	}
	var down []observe.Pipeline // plugins that are down for sidecars in other processes
	state, err := d.status(r.Context())
	for i := range state.Pipelines {
		if state.Pipelines[i].State.OfEmbedder() {
			down = append(down, state.Pipelines[i])
		}
	}
	return view{page: "models", title: "Models and plugins", data: map[string]any{
		"Plugins": plugins, "Models": folders, "Running": running, "Down": down,
	}}, err
}

// checksPage shows what keeps pipelines from working, now or later.
type checksPage struct {
	Checks            []check.Finding // failed ones first
	More              int             // number of findings not shown
	OK, Warned, Wrong int
	Looking           bool      // new findings follow after the page, which shows the last ones
	At                time.Time // time of the shown findings; zero: none yet
	Pipelines         int
}

// quickChecks is the number of pipelines that can be checked while a page loads.
const quickChecks = 20

func (d *Dashboard) checks(r *http.Request) (view, error) {
	var o checksPage
	names, err := d.o.Service.Names(r.Context())
	if err != nil {
		return view{}, err
	}
	o.Pipelines = len(names)
	if o.Pipelines > quickChecks && r.Header.Get(live) == "" && r.FormValue("now") == "" {
		var fresh bool
		o.Checks, o.At, fresh, err = d.o.Service.LastChecks(r.Context())
		o.Looking = !fresh
	} else {
		o.Checks, err = d.o.Service.Checks(r.Context())
	}
	for i := range o.Checks {
		switch o.Checks[i].Status {
		case check.OK:
			o.OK++
		case check.Warn:
			o.Warned++
		case check.Wrong:
			o.Wrong++
		}
	}
	o.Checks = slices.Clone(o.Checks)
	slices.SortStableFunc(o.Checks, func(a, b check.Finding) int {
		return slices.Index(worst, checkTone(a.Status)) - slices.Index(worst, checkTone(b.Status))
	})
	const most = 80 // more would not be read
	o.More = max(len(o.Checks)-most, 0)
	o.Checks = o.Checks[:min(most, len(o.Checks))]
	return view{page: "checks", title: "Checks", data: &o}, err
}

func (d *Dashboard) audit(r *http.Request) (view, error) {
	c := choiceOf(r.URL.Query())
	names, err := d.o.Service.Names(r.Context())
	if err != nil {
		return view{}, err
	}
	page, err := d.o.Service.Audit(r.Context(), c.pipelines(), c.After, auditPage)
	return view{page: "audit", title: "Audit", live: true, data: map[string]any{
		"Actions": page.Actions, "Pipelines": names, "Choice": c, "Next": page.Next,
	}}, err
}

// settingGroup holds the settings of one section of the file.
type settingGroup struct {
	Name     string
	Settings []config.Shown
}

func (d *Dashboard) config(r *http.Request) (view, error) {
	all, err := d.o.Service.Config(r.Context())
	var list []settingGroup
	for _, s := range all {
		part, _, nested := strings.Cut(s.Path, ".")
		if !nested {
			part = "general"
		}
		at := slices.IndexFunc(list, func(g settingGroup) bool { return g.Name == part })
		if at < 0 {
			at, list = len(list), append(list, settingGroup{Name: part})
		}
		list[at].Settings = append(list[at].Settings, s)
	}
	return view{page: "config", title: "Settings", data: list}, err
}
