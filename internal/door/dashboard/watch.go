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

// overview is the data of the first page: whether all is well and, if not, what to do.
type overview struct {
	*admin.Status

	Health    sentence
	Remarks   []string
	Lag       int64
	Kept      gauge
	Oldest    float64
	Open      int64
	Failed    int64
	Unwell    []observe.Pipeline // all their rows wait, not just single ones
	Errors    []report.ErrorGroup
	Actions   []report.Action
	Past      *past
	Covered   cover
	Few       []observe.Pipeline // the most urgent ones
	Pace      pace               // of all together
	Paused    bool               // some are paused, by name or by the switch
	AllPaused bool
}

// Rate returns the rows embedded per second: now or, if nothing runs, in the shown window.
func (o *overview) Rate() float64 {
	if o.Pace.Rate > 0 {
		return o.Pace.Rate
	}
	return o.Past.Total.Rate
}

// gauge is the amount of WAL retained, with its limit.
type gauge struct {
	Slot       string
	Kept, Most int64 // Most 0: no limit
}

// Part returns how full it is, from 0 to 1.
func (g gauge) Part() float64 {
	if g.Most == 0 {
		return 0
	}
	return float64(g.Kept) / float64(g.Most)
}

// Tone returns the tone of the fill level.
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

// status returns the state that the caller may see.
func (d *Dashboard) status(ctx context.Context) (*admin.Status, error) {
	now, err := d.o.Service.Status(ctx)
	return &now, err
}

// worstFirst returns a few pipelines: if there are more, the most urgent ones.
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

// cover is the coverage of all pipelines for which it is known.
type cover struct {
	Rows, Known int64
	About       bool // some are estimated
}

// Part is the covered share of the rows.
func (c cover) Part() float64 {
	if c.Rows == 0 {
		return 1
	}
	return min(float64(c.Known)/float64(c.Rows), 1)
}

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
	o.Unwell = unwell(state.Pipelines)
	o.Unwell = o.Unwell[:min(5, len(o.Unwell))]
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
	if len(state.Slots) == 0 { // nothing is set up, so there is nothing else to read
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

// pipelineList is a page of pipelines.
type pipelineList struct {
	Pipelines  []observe.Pipeline
	Scans      []backfill // unfinished scans of these
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

// listOf returns a page by its number, or the first one.
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

// onePipeline is the data of the page of a pipeline.
type onePipeline struct {
	observe.Pipeline

	Unease      *sentence
	Step        step
	Set         *pipeline.Pipeline // nil: it cannot be read now
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
		o.Key = pipeline.KeyNames(o.Set.Key)
	}
	if o.Errors, err = d.o.Service.Errors(ctx, []string{o.Name}); err != nil {
		return view{}, err
	}
	if o.Past, err = d.past(r, nil, o.Name); err != nil {
		return view{}, err
	}
	done, err := d.o.Service.Audit(ctx, []string{o.Name}, "", 10)
	o.Actions = done.Actions
	return view{page: "pipeline", title: o.Name, live: true, data: &o}, err
}

// replication is a slot with its WAL gauge.
type replication struct {
	report.Slot

	Gauge gauge
	Tone  string
}

// system serves the page of the stream and the sidecars.
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
