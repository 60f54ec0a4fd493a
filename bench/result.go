package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// result is the result of one run.
type result struct {
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Smoke    bool      `json:"smoke"`
	Machine  machine   `json:"machine"`
	Sections []section `json:"sections"`
}

type machine struct {
	CPUs       int    `json:"cpus"`
	PostgreSQL string `json:"postgresql"`
	System     string `json:"system"`
}

// section is a table of figures.
type section struct {
	Title string `json:"title"`
	// Columns are the keys of More to print as columns, in this order; the rest is in JSON only. None: print all, in
	// words.
	Columns []string `json:"columns,omitempty"`
	Rows    []*line  `json:"rows"`
}

// line is one measured quantity, with repetitions.
type line struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Values []float64          `json:"values,omitempty"` // by round
	Median float64            `json:"median"`
	To     map[string]float64 `json:"to,omitempty"`   // ratios to other lines, medians of the ratios within each round
	More   map[string]float64 `json:"more,omitempty"` // further measurements, medians

	more map[string][]float64
}

// figures collects a section's values by line, in the order in which the lines first appear.
type figures struct{ section }

func newFigures(format string, args ...any) *figures {
	return &figures{section{Title: fmt.Sprintf(format, args...)}}
}

func (f *figures) line(name string) *line {
	for _, l := range f.Rows {
		if l.Name == name {
			return l
		}
	}
	l := &line{Name: name, more: map[string][]float64{}}
	f.Rows = append(f.Rows, l)
	return l
}

// add adds a round's value of a line.
func (f *figures) add(name, unit string, value float64) {
	l := f.line(name)
	l.Unit, l.Values = unit, append(l.Values, value)
}

// note adds a further measurement of a line's round.
func (f *figures) note(name, what string, value float64) {
	l := f.line(name)
	l.more[what] = append(l.more[what], value)
}

// times adds the quantiles of single times.
func (f *figures) times(name string, ms []float64) {
	f.add(name+", p50", "ms", quantile(ms, 0.5))
	f.add(name+", p99", "ms", quantile(ms, 0.99))
}

// done computes medians, and the ratio of every line to each of the named ones. Ratios are computed within a round, so
// a slow round does not change them.
func (f *figures) done(to ...string) section {
	for _, l := range f.Rows {
		l.Median, l.More, l.To = quantile(l.Values, 0.5), map[string]float64{}, map[string]float64{}
		for what, values := range l.more {
			l.More[what] = quantile(values, 0.5)
		}
		for _, name := range to {
			base := f.line(name)
			if base == l || base.Unit != l.Unit {
				continue
			}
			var ratios []float64
			for i := range min(len(l.Values), len(base.Values)) {
				ratios = append(ratios, l.Values[i]/base.Values[i])
			}
			l.To[name] = quantile(ratios, 0.5)
		}
	}
	return f.section
}

// show prints a table with its current content. It is deferred, so that it also prints what was measured before a
// failure.
func (p *place) show(f *figures, to ...string) {
	if len(f.Rows) > 0 {
		p.sections = append(p.sections, f.done(to...))
	}
}

// quantile interpolates between the two nearest values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// number prints three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func (r *result) print(w io.Writer) {
	for _, s := range r.Sections {
		fmt.Fprintf(w, "\n%s\n", s.Title)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if len(s.Columns) > 0 {
			fmt.Fprintf(t, "  \t%s\t%s\n", s.Rows[0].Unit, strings.Join(s.Columns, "\t"))
		}
		for _, l := range s.Rows {
			fmt.Fprintf(t, "  %s\n", strings.Join(l.cells(s.Columns), "\t"))
		}
		_ = t.Flush() // errors of the terminal are ignored
	}
	fmt.Fprintf(w, "\n%d CPUs, PostgreSQL %s, %s; medians, ratios within each round; %.0f s\n",
		r.Machine.CPUs, r.Machine.PostgreSQL, r.Machine.System, r.Seconds)
}

// cells are a line of a table with these columns, or without columns its figures in words.
func (l *line) cells(columns []string) []string {
	if len(columns) > 0 {
		cells := []string{l.Name, number(l.Median)}
		for _, name := range columns {
			v, ok := l.More[name]
			if !ok {
				v = math.NaN()
			}
			cells = append(cells, number(v))
		}
		return cells
	}
	var ratios, words []string
	for _, name := range slices.Sorted(maps.Keys(l.To)) {
		ratios = append(ratios, fmt.Sprintf("%.2f of %s", l.To[name], name))
	}
	for _, name := range slices.Sorted(maps.Keys(l.More)) {
		words = append(words, name+" "+number(l.More[name]))
	}
	if len(l.Values) > 1 {
		words = append(words, fmt.Sprintf("[%s to %s]", number(slices.Min(l.Values)), number(slices.Max(l.Values))))
	}
	return []string{
		l.Name, number(l.Median) + " " + l.Unit, strings.Join(ratios, ", "), strings.Join(words, ", "),
	}
}

func (r *result) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
