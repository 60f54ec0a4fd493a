package dashboard

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// past is how pipelines did, as charts and as a table of the same figures.
type past struct {
	report.Past

	Path    string
	Windows []report.Window
	Charts  []chart
	Columns []string
	Rows    [][]string // the time, and a figure for each column
}

// past reads how pipelines did in the window that a page asks for: these, or all.
func (d *Dashboard) past(r *http.Request, names ...string) (*past, error) {
	window := cmp.Or(r.URL.Query().Get("window"), report.Windows[0].Name)
	read, err := d.o.Service.History(r.Context(), window, names)
	if err != nil {
		return nil, err
	}
	return pastOf(read, r.URL.EscapedPath()), nil
}

// figure is one figure of each point.
type figure struct {
	column string
	of     func(*report.Did) *float64
	format func(float64) string
}

// figures are the columns of the table.
var figures = []figure{
	{"Rows/s", func(d *report.Did) *float64 { return new(d.Rate) }, short},
	{"Fresh, p50", func(d *report.Did) *float64 { return d.P50 }, spoken},
	{"Fresh, p99", func(d *report.Did) *float64 { return d.P99 }, spoken},
	{"Waiting", func(d *report.Did) *float64 { return new(float64(d.Backlog)) }, short},
	{"Failed", func(d *report.Did) *float64 { return new(float64(d.Failed)) }, short},
	{"Tokens", func(d *report.Did) *float64 { return new(float64(d.Tokens)) }, short},
	{"Price", func(d *report.Did) *float64 { return new(d.Price) }, money},
}

// pastOf draws what was measured. Where no model has a price none is shown.
func pastOf(read report.Past, path string) *past {
	shown := figures
	if read.Total.Price == 0 {
		shown = figures[:len(figures)-1]
	}
	p := past{Past: read, Path: path, Windows: report.Windows}
	times := make([]time.Time, len(read.Points))
	values := make([][]*float64, len(shown))
	for k := range shown {
		p.Columns = append(p.Columns, shown[k].column)
	}
	for i := range read.Points {
		times[i] = read.Points[i].At
		row := []string{times[i].UTC().Format("2 Jan 15:04")}
		for k := range shown {
			v := shown[k].of(&read.Points[i].Did)
			values[k] = append(values[k], v)
			if v == nil {
				row = append(row, "–")
			} else {
				row = append(row, shown[k].format(*v))
			}
		}
		p.Rows = append(p.Rows, row)
	}
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
	if len(shown) < len(figures) {
		p.Charts = p.Charts[:5]
	}
	first := []int{0, 1, 3, 4, 5, 6} // columns
	for i := range p.Charts {
		c := &p.Charts[i]
		c.Times, c.Format = times, shown[first[i]].format
		c.Tick = c.Format
		if len(times) > 1 {
			c.Step = times[1].Sub(times[0])
		}
		c.Lines = []line{{Values: values[first[i]], Column: first[i]}}
	}
	fresh := &p.Charts[1]
	fresh.Tick = power
	fresh.Lines[0].Name = "p50"
	fresh.Lines = append(fresh.Lines, line{Name: "p99", Values: values[2], Column: 2})
	return &p
}

// quantiles are half of the rows and 99 of 100.
func quantiles(d *report.Did) string {
	if d.P50 == nil || d.P99 == nil {
		return "no rows"
	}
	return "p50 " + spoken(*d.P50) + ", p99 " + spoken(*d.P99)
}

// spoken writes seconds as people say them: 40 ms, 1.5 s, 8 min 6 s, 3 h 20 min.
func spoken(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	const few = 10 * time.Second // of which a part of one counts
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	case d < few:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s" //nolint:mnd // one digit
	case d < time.Hour:
		d = d.Round(time.Second)
		return both(d/time.Minute, "min", d%time.Minute/time.Second, "s")
	case d < 48*time.Hour: //nolint:mnd // two days
		d = d.Round(time.Minute)
		return both(d/time.Hour, "h", d%time.Hour/time.Minute, "min")
	}
	const day = 24 * time.Hour
	d = d.Round(time.Hour)
	return both(d/day, "days", d%day/time.Hour, "h")
}

// power writes a power of ten of seconds, for the few signs of room beside a chart: 10 ms, 1 s, 1000 s.
func power(seconds float64) string {
	if seconds < 1 {
		return spoken(seconds)
	}
	return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
}

// both writes two parts of a time, without one that is 0.
func both(large time.Duration, unit string, small time.Duration, part string) string {
	switch {
	case large == 0:
		return strconv.FormatInt(int64(small), 10) + " " + part
	case small == 0:
		return strconv.FormatInt(int64(large), 10) + " " + unit
	}
	return strconv.FormatInt(int64(large), 10) + " " + unit + " " + strconv.FormatInt(int64(small), 10) + " " + part
}

// short writes a figure in a few digits: 0.05, 3.2, 940, 12.5k, 3M.
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

// money writes a price; what is around it names the currency.
func money(v float64) string { return wording.Money(v, "") }
