package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
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
	Past      *past
	Covered   cover
	Few       []observe.Pipeline // those that somebody looks at first
	Pace      pace               // of all together
	Paused    bool               // some are, all of them by their names or by the switch
	AllPaused bool
}

// Rate is how many rows are embedded a second: now, or where nothing is, in the window that is shown.
func (o *overview) Rate() float64 {
	if o.Pace.Rate > 0 {
		return o.Pace.Rate
	}
	return o.Past.Total.Rate
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

// worstFirst are a few pipelines; where there are more, those that need somebody most.
func worstFirst(all []observe.Pipeline) []observe.Pipeline {
	const few = 12
	if len(all) <= few {
		return all
	}
	list := slices.Clone(all)
	slices.SortStableFunc(list, func(a, b observe.Pipeline) int {
		return slices.Index(worst, toneFor(&a)) - slices.Index(worst, toneFor(&b))
	})
	return list[:few]
}

// cover is how many of the rows have their vector, of all pipelines of which that is known.
type cover struct {
	Rows, Known int64
	About       bool // some are estimated
}

// Part is 1 where all rows have it.
func (c cover) Part() float64 {
	if c.Rows == 0 {
		return 1
	}
	return min(float64(c.Known)/float64(c.Rows), 1)
}

// coverOf adds pipelines up.
func coverOf(list []observe.Pipeline) (c cover) {
	for i := range list {
		if p := &list[i]; p.CoverageOr(-1) >= 0 {
			c.Rows, c.Known, c.About = c.Rows+p.Rows, c.Known+min(p.Known, p.Rows), c.About || p.RowsEstimated
		}
	}
	return c
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
	const fewRemarks = 20
	if more := len(o.Remarks) - fewRemarks; more > 0 {
		o.Remarks = append(o.Remarks[:fewRemarks],
			wording.Count(int64(more), "more remark")+": embedsidecar status shows all of them")
	}
	const fewUnwell = 5
	o.Unwell = unwell(state.Pipelines)
	o.Unwell = o.Unwell[:min(fewUnwell, len(o.Unwell))]
	for i := range state.Slots {
		o.Lag += state.Slots[i].LagBytes
	}
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		o.Open, o.Failed = o.Open+p.Open(), o.Failed+p.Failed
		if p.OldestSeconds != nil {
			o.Oldest = max(o.Oldest, *p.OldestSeconds)
		}
	}
	o.Covered, o.Few = coverOf(state.Pipelines), worstFirst(state.Pipelines)
	for i := range state.Slots {
		if g := gaugeOf(&state.Slots[i]); i == 0 || g.Part() > o.Kept.Part() || o.Kept.Most == 0 && g.Kept > o.Kept.Kept {
			o.Kept = g
		}
	}
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
	if o.Past, err = d.past(r, busiest(state.Pipelines)); err != nil {
		return view{}, err
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

// pipelineList is a page of all pipelines.
type pipelineList struct {
	Pipelines  []observe.Pipeline
	Scans      []backfill // of them, those that are not done
	All        int
	Page, Next int // 0: there is no next
}

func (d *Dashboard) pipelines(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	list := listOf(state.Pipelines, r.URL.Query().Get("page"))
	return view{page: "pipelines", title: "Pipelines", live: true, data: list}, nil
}

// listOf is a page of them by its number, or the first.
func listOf(all []observe.Pipeline, number string) *pipelineList {
	const most = 30
	p := pipelineList{All: len(all), Page: 1}
	if n, err := strconv.Atoi(number); err == nil && n > 1 && n <= (p.All+most-1)/most {
		p.Page = n
	}
	from := (p.Page - 1) * most
	p.Pipelines = all[from:min(from+most, p.All)]
	if from+most < p.All {
		p.Next = p.Page + 1
	}
	for i := range p.Pipelines {
		if b := backfillOf(&p.Pipelines[i]); b.Phase != "done" {
			p.Scans = append(p.Scans, b)
		}
	}
	return &p
}

// onePipeline is the page of a pipeline.
type onePipeline struct {
	observe.Pipeline

	Unease      *sentence
	Step        step
	Set         *pipeline.Pipeline // nil: it cannot be looked at now
	Key         []string
	Destination string
	Priority    string
	Errors      []report.ErrorGroup
	Past        *past
	Actions     []report.Action
	Priorities  []string
}

func (d *Dashboard) pipeline(r *http.Request) (view, error) {
	ctx := r.Context()
	state, err := d.o.Service.Pipeline(ctx, r.PathValue("name"))
	if err != nil {
		return view{}, err
	}
	o := onePipeline{Pipeline: state, Unease: uneasy(&state), Step: stepOf(&state), Priorities: verbs.Priorities}
	o.Hints = o.Step.besides(o.Hints)
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
	if o.Past, err = d.past(r, nil, o.Name); err != nil {
		return view{}, err
	}
	const few = 10
	done, err := d.o.Service.Audit(ctx, []string{o.Name}, "", few)
	o.Actions = done.Actions
	return view{page: "pipeline", title: o.Name, live: true, data: &o}, err
}

// replication is a slot with what is known of the server's WAL.
type replication struct {
	report.Slot

	Gauge gauge
	Tone  string
}

// system is the stream and the sidecars.
func (d *Dashboard) system(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	list := []replication{}
	for i := range state.Slots {
		s := &state.Slots[i]
		list = append(list, replication{*s, gaugeOf(s), checkTone(check.Status(s.Status))})
	}
	names := map[int32]string{}
	for i := range state.Pipelines {
		names[state.Pipelines[i].ID] = state.Pipelines[i].Name
	}
	return view{page: "system", title: "System", live: true, data: map[string]any{
		"Slots": list, "Pipelines": state.Pipelines, "Sidecars": state.Sidecars, "Names": names,
	}}, nil
}
