package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// overview is what somebody sees first: is all well, and if not, what is to be done.
type overview struct {
	*admin.Status

	Health    sentence
	Remarks   []string
	Lag       int64
	Kept      gauge
	Oldest    float64
	Open      int64
	Failed    int64
	Unwell    []observe.Pipeline // all their rows wait, whatever goes wrong with single ones
	Errors    []report.ErrorGroup
	Actions   []report.Action
	LagLine   []float64
	OldLine   []float64
	OpenLine  []float64
	KeptLine  []float64
	Pace      pace // of all together
	Paused    bool // some are, all of them by their names or by the switch
	AllPaused bool
}

// gauge is how much WAL is kept, of how much.
type gauge struct {
	Slot       string
	Kept, Most int64 // Most 0: no limit is set
}

// Part is how full it is, from 0 to 1.
func (g gauge) Part() float64 {
	if g.Most == 0 {
		return 0
	}
	return float64(g.Kept) / float64(g.Most)
}

// Tone is how well that is.
func (g gauge) Tone() string {
	const warn, bad = 0.5, 0.8
	switch {
	case g.Part() >= bad:
		return "bad"
	case g.Part() >= warn:
		return "warn"
	}
	return "good"
}

// status is how things stand, as far as who asks sees it.
func (d *Dashboard) status(ctx context.Context) (*admin.Status, error) {
	now, err := d.o.Service.Status(ctx)
	return &now, err
}

// past is how things stood while somebody looked, up to now.
func (d *Dashboard) past(ctx context.Context, now *admin.Status) []beat {
	who, _ := gate.CallerOf(ctx)
	return d.beats.add(now, len(who.Pipelines) == 0)
}

func (d *Dashboard) overview(r *http.Request) (view, error) {
	ctx := r.Context()
	state, err := d.status(ctx)
	if err != nil {
		return view{}, err
	}
	if d.o.Service.OfNone() {
		return view{page: "databases", title: "Databases", live: true, data: state}, nil
	}
	o := overview{Status: state, Health: sentenceOf(&state.Database), Remarks: state.Remarks()}
	o.Remarks = slices.DeleteFunc(o.Remarks, func(r string) bool { return o.Health.Next != "" && strings.Contains(r, o.Health.Next) })
	o.Unwell = unwell(state.Pipelines)
	past := d.past(ctx, state)
	now := past[len(past)-1]
	o.Lag, o.Oldest, o.Open, o.Failed = now.Lag, now.Oldest, now.Open, now.Failed
	for i := range state.Slots {
		if g := gaugeOf(&state.Slots[i]); i == 0 || g.Part() > o.Kept.Part() || o.Kept.Most == 0 && g.Kept > o.Kept.Kept {
			o.Kept = g
		}
	}
	o.LagLine = line(past, func(b beat) float64 { return float64(b.Lag) })
	o.OldLine = line(past, func(b beat) float64 { return b.Oldest })
	o.OpenLine = line(past, func(b beat) float64 { return float64(b.Open) })
	o.KeptLine = line(past, func(b beat) float64 { return float64(b.Kept) })
	o.Pace = together(state.Pipelines)
	o.AllPaused = len(state.Pipelines) > 0
	for i := range state.Pipelines {
		paused := state.Pipelines[i].State == health.Paused
		o.Paused, o.AllPaused = o.Paused || paused, o.AllPaused && paused
	}
	v := view{page: "overview", title: "Overview", live: true, data: &o}
	if len(state.Slots) == 0 { // nothing is set up, so there is nothing else to ask
		return v, nil
	}
	if o.Errors, err = d.o.Service.Errors(ctx, nil); err != nil {
		return view{}, err
	}
	const few = 5
	o.Errors = o.Errors[:min(few, len(o.Errors))]
	done, err := d.o.Service.Audit(ctx, nil, "", few)
	o.Actions = done.Actions
	return v, err
}

func gaugeOf(s *report.Slot) gauge {
	g := gauge{Slot: s.Name, Kept: s.RetainedBytes}
	if s.SafeWALBytes != nil {
		g.Most = s.RetainedBytes + max(*s.SafeWALBytes, 0)
	}
	return g
}

func (d *Dashboard) pipelines(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	return view{page: "pipelines", title: "Pipelines", live: true, data: state}, nil
}

// onePipeline is the page of a pipeline.
type onePipeline struct {
	observe.Pipeline

	Unease      *sentence
	Set         *pipeline.Pipeline // nil: it cannot be looked at now
	Key         []string
	Destination string
	Priority    string
	Errors      []report.ErrorGroup
	Minutes     []column // the last hour
	Done, Bad   int64
	Actions     []report.Action
	Priorities  []string
}

func (d *Dashboard) pipeline(r *http.Request) (view, error) {
	ctx := r.Context()
	state, err := d.o.Service.Pipeline(ctx, r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	o := onePipeline{Pipeline: state, Unease: uneasy(&state), Priorities: verbs.Priorities}
	if o.Set, err = d.o.Service.Defined(ctx, o.Name); err != nil {
		return view{}, err
	}
	if o.Set != nil {
		o.Destination = config.FormatDestination(o.Set.Spec)
		o.Priority = o.Priorities[min(max(int(o.Set.Priority), 0), len(o.Priorities)-1)]
		for _, k := range o.Set.Key {
			o.Key = append(o.Key, k.Name)
		}
	}
	if o.Errors, err = d.o.Service.Errors(ctx, []string{o.Name}); err != nil {
		return view{}, err
	}
	past, err := d.o.Service.History(ctx, "1h", []string{o.Name})
	if err != nil {
		return view{}, err
	}
	o.count(&past)
	const few = 10
	done, err := d.o.Service.Audit(ctx, []string{o.Name}, "", few)
	o.Actions = done.Actions
	return view{page: "pipeline", title: o.Name, live: true, data: &o}, err
}

// count makes columns of what was done in each minute of the last hour.
func (o *onePipeline) count(past *report.Past) {
	for i := range past.Points {
		p := &past.Points[i]
		o.Minutes = append(o.Minutes, column{Good: float64(p.Embedded + p.Reused), Bad: float64(p.Failed)})
	}
	o.Done, o.Bad = past.Total.Embedded+past.Total.Reused, past.Total.Failed
}

// replication is a slot with what is known of the server's WAL.
type replication struct {
	report.Slot

	Gauge gauge
	Tone  string
}

func (d *Dashboard) replication(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	list := []replication{}
	for i := range state.Slots {
		s := &state.Slots[i]
		list = append(list, replication{*s, gaugeOf(s), checkTone(check.Status(s.Status))})
	}
	past := d.past(r.Context(), state)
	return view{page: "replication", title: "Replication", live: true, data: map[string]any{
		"Slots": list, "Pipelines": state.Pipelines,
		"Kept": line(past, func(b beat) float64 { return float64(b.Kept) }),
		"Lag":  line(past, func(b beat) float64 { return float64(b.Lag) }),
	}}, nil
}

func (d *Dashboard) workers(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	names := map[int32]string{}
	for i := range state.Pipelines {
		names[state.Pipelines[i].ID] = state.Pipelines[i].Name
	}
	return view{page: "workers", title: "Workers", live: true, data: map[string]any{
		"Sidecars": state.Sidecars, "Names": names,
	}}, nil
}
