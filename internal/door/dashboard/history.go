package dashboard

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// past is the history of pipelines, as charts and as a table of the same figures.
type past struct {
	report.Past

	Path    string
	Windows []report.Window
	By      string // "pipeline": a line for each of a few pipelines; "": one for all together
	Splits  bool   // there are several pipelines to choose from
	Charts  []chart
	Columns []string
	Rows    [][]string // the time, and a figure for each column
}

// past reads the history of pipelines in the requested window: of the named ones, or of all. On request it draws each
// of split.
func (d *Dashboard) past(r *http.Request, split []string, names ...string) (*past, error) {
	window := cmp.Or(r.URL.Query().Get("window"), report.Windows[0].Name)
	read, err := d.o.Service.History(r.Context(), window, names)
	if err != nil {
		return nil, err
	}
	var each []report.Past
	if len(split) > 1 && r.URL.Query().Get("by") == "pipeline" {
		for _, name := range split {
			one, err := d.o.Service.History(r.Context(), window, []string{name})
			if err != nil {
				return nil, err
			}
			each = append(each, one)
		}
	}
	p := pastOf(read, r.URL.EscapedPath(), each...)
	p.Splits = len(split) > 1
	return p, nil
}

// busiest returns the names of a few pipelines: first the working ones, then those with the most open or finished work.
func busiest(all []observe.Pipeline) (names []string) {
	const few = 4 // lines that can be told apart
	list := slices.Clone(all)
	slices.SortStableFunc(list, func(a, b observe.Pipeline) int {
		return cmp.Or(cmp.Compare(b.Speed.Rows, a.Speed.Rows), cmp.Compare(b.Open(), a.Open()),
			cmp.Compare(b.Tokens, a.Tokens))
	})
	for i := range list[:min(few, len(list))] {
		names = append(names, list[i].Name)
	}
	return names
}

// figure is a column of the table and a line of a chart.
type figure struct {
	column, name string
	of           func(*report.Did) *float64
	format       func(float64) string
}

// figures lists the figures of each chart, in the order of the charts.
var figures = [][]figure{
	{{"Rows/s", "", func(d *report.Did) *float64 { return new(d.Rate) }, short}},
	{
		{"Fresh, p50", "p50", func(d *report.Did) *float64 { return d.P50 }, spoken},
		{"Fresh, p99", "p99", func(d *report.Did) *float64 { return d.P99 }, spoken},
	},
	{{"Waiting", "", func(d *report.Did) *float64 { return new(float64(d.Backlog)) }, short}},
	{{"Failed", "", func(d *report.Did) *float64 { return new(float64(d.Failed)) }, short}},
	{{"Tokens", "", func(d *report.Did) *float64 { return new(float64(d.Tokens)) }, short}},
	{{"Price", "", func(d *report.Did) *float64 { return new(d.Price) }, money}},
}

// pastOf draws the history of all, or of each. It leaves out an incomplete step, which would look like a drop. It shows
// no price if no model has one.
func pastOf(read report.Past, path string, each ...report.Past) *past {
	p := past{Past: read, Path: path, Windows: report.Windows}
	all := &read.Total
	unit := "price of the tokens"
	if read.Currency != "" {
		unit += " in " + read.Currency
	}
	p.Charts = []chart{
		{ID: "throughput", Title: "Throughput", Unit: "rows a second", Now: number(all.Embedded+all.Reused) + " rows"},
		{ID: "freshness", Title: "Freshness", Unit: "from commit to vector", Powers: true, Now: quantiles(all)},
		{ID: "backlog", Title: "Backlog", Unit: "rows that wait", Whole: true, Now: "at most " + number(all.Backlog)},
		{ID: "failures", Title: "Failures", Unit: "rows that became dead letters", Failures: true, Whole: true, Now: number(all.Failed)},
		{ID: "tokens", Title: "Tokens", Unit: "tokens embedded", Now: number(all.Tokens)},
		{ID: "price", Title: "Money", Unit: unit, Now: money(all.Price)},
	}
	if all.Price == 0 {
		p.Charts = p.Charts[:5]
	}
	sources := []report.Past{read}
	if len(each) > 0 {
		p.By, sources = "pipeline", each
		p.Charts[1].Unit += ", p99"
	}
	points := len(read.Points)
	if points > 1 && read.Points[points-1].Seconds < read.Points[0].Seconds {
		points--
	}
	times := make([]time.Time, points)
	p.Rows = make([][]string, points)
	for i := range times {
		times[i] = read.Points[i].At
		p.Rows[i] = []string{times[i].UTC().Format("2 Jan 15:04")}
	}
	for k := range p.Charts {
		c, shown := &p.Charts[k], figures[k]
		c.Times, c.Format, c.Tick = times, shown[0].format, shown[0].format
		if points > 1 {
			c.Step = times[1].Sub(times[0])
		}
		if len(each) > 0 {
			shown = shown[len(shown)-1:]
		}
		for f := range shown {
			for s := range sources {
				p.add(c, &shown[f], &sources[s], len(each) > 0)
			}
		}
	}
	p.Charts[1].Tick = power
	return &p
}

// add adds a figure to a chart and to the table.
func (p *past) add(c *chart, f *figure, from *report.Past, named bool) {
	column, l := f.column, line{Name: f.name, Column: len(p.Columns)}
	if named {
		l.Name = from.Pipelines[0]
		column += ", " + l.Name
	}
	for i := range c.Times {
		cell := "–"
		var v *float64
		if i < len(from.Points) { // a minute may have begun since the others were read
			v = f.of(&from.Points[i].Did)
		}
		if v != nil {
			cell = f.format(*v)
		}
		l.Values, p.Rows[i] = append(l.Values, v), append(p.Rows[i], cell)
	}
	p.Columns, c.Lines = append(p.Columns, column), append(c.Lines, l)
}

// quantiles formats the freshness at p50 and p99.
func quantiles(d *report.Did) string {
	if d.P50 == nil || d.P99 == nil {
		return "no rows"
	}
	return "p50 " + spoken(*d.P50) + ", p99 " + spoken(*d.P99)
}

// spoken formats seconds for display, with a decimal if there are few: 1.5 s.
func spoken(seconds float64) string {
	if seconds < 1 || seconds >= 10 {
		return wording.Age(seconds)
	}
	return strconv.FormatFloat(math.Round(seconds*10)/10, 'f', -1, 64) + " s"
}

// power formats a power of ten of seconds in few characters: 10 ms, 1 s, 1000 s.
func power(seconds float64) string {
	if seconds < 1 {
		return spoken(seconds)
	}
	return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
}

// short formats a figure with few digits: 0.05, 3.2, 940, 12.5k, 3M.
func short(v float64) string {
	const thousand, tens = 1000, 10
	unit := ""
	for _, next := range []string{"k", "M", "G", "T"} {
		if v < tens*thousand && (unit == "" || v < thousand) {
			break
		}
		v, unit = v/thousand, next
	}
	digits := 0
	switch {
	case v > 0 && v < 1 && unit == "":
		digits = 2
	case v < 100 && (v != math.Trunc(v)):
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	return s + unit
}

// money formats a price; the context names the currency.
func money(v float64) string { return wording.Money(v, "") }
