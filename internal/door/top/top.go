// Package top makes the frames of the view that people leave open on a terminal, from what the tables say alone: it
// works while no sidecar runs.
package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// Table is a part of a frame.
type Table struct {
	Columns []string // those of numbers begin with ">"
	Rows    [][]any
}

// Frame is what is seen at a time.
type Frame struct {
	Head      string // how it stands, in one line
	Pipelines Table
	Bars      []string // of what is under way
	Sidecars  Table
	Slots     Table
	Remarks   []string // what somebody should know or do, and the last errors
}

// View makes frames, one after the other. Its zero value has made none.
type View struct {
	clocks map[string]*report.Countdown
}

// Frame is how things stand now.
func (v *View) Frame(d *observe.Database, now time.Time) Frame {
	if v.clocks == nil {
		v.clocks = map[string]*report.Countdown{}
	}
	f := Frame{
		Pipelines: Table{
			Columns: []string{
				"pipeline", "state", ">waiting", ">running", ">retrying", ">failed", ">rate", ">lag", ">coverage", "embedder",
			},
		},
		Remarks: d.Remarks(),
	}
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		if v.clocks[p.Name] == nil {
			v.clocks[p.Name] = &report.Countdown{}
		}
		progress := v.clocks[p.Name].Of(&p.Pipeline, now)
		if bar := progress.String(); bar != "" {
			f.Bars = append(f.Bars, p.Name+"  "+bar)
		}
		f.Pipelines.Rows = append(f.Pipelines.Rows, pipelineRow(p, progress.Rate))
	}
	f.Sidecars, f.Slots = sidecars(d.Sidecars), slots(d.Slots)
	f.Head = head(d, now)
	return f
}

// head says in one line how it stands.
func head(d *observe.Database, now time.Time) string {
	var open, failed, act int64
	for i := range d.Pipelines {
		p := &d.Pipelines[i]
		open, failed = open+p.Open(), failed+p.Failed
		if p.NeedsAct {
			act++
		}
	}
	what := "nothing is set up yet: embedsidecar init"
	switch {
	case act > 0:
		what = wording.Count(act, "pipeline") + " need attention"
	case len(d.Pipelines) > 0:
		what = "all is well"
	}
	return fmt.Sprintf("embedsidecar %s  %s; %s, %s to embed, %d failed, %s", now.UTC().Format(time.DateTime), what,
		wording.Count(int64(len(d.Pipelines)), "pipeline"), wording.Count(open, "row"), failed,
		wording.Count(int64(len(d.Sidecars)), "sidecar"))
}

func pipelineRow(p *observe.Pipeline, rate float64) []any {
	lag, speed := "-", "-"
	if p.OldestSeconds != nil {
		lag = wording.Age(*p.OldestSeconds)
	}
	if rate > 0 {
		speed = strconv.FormatFloat(rate, 'f', 0, 64) + "/s"
	}
	embedder := []string{p.Plugin}
	if p.Model != "" {
		embedder = append(embedder, p.Model)
	}
	return []any{
		p.Name, p.State.Word(), p.Pending, p.Running, p.Retrying, p.Failed, speed, lag, p.CoverageWord(),
		strings.Join(embedder, "/"),
	}
}

func sidecars(list []report.Sidecar) Table {
	t := Table{Columns: []string{"sidecar", "stream", ">seen", ">done 24h", ">failed 24h", "version"}}
	for i := range list {
		s := &list[i]
		stream := string(s.Stream)
		if s.Stream == health.NoStream {
			stream = "works only"
		}
		if s.StreamDetail != "" {
			stream += ": " + s.StreamDetail
		}
		t.Rows = append(t.Rows, []any{
			s.Instance, stream, wording.Age(s.SeenSecondsAgo) + " ago", s.Succeeded, s.GivenUp, s.Version,
		})
	}
	return t
}

func slots(list []report.Slot) Table {
	t := Table{Columns: []string{"slot", "state", ">behind", ">wal kept", ">checkpoint"}}
	for i := range list {
		s := &list[i]
		t.Rows = append(t.Rows, []any{
			s.Name, s.Word(), wording.Size(s.LagBytes), s.Kept(), wording.Age(s.SavedSecondsAgo) + " ago",
		})
	}
	return t
}
