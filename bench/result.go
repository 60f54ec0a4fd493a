package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// result is all that one run measured.
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
	OS         string `json:"os"`
	Arch       string `json:"arch"`
}

// section is a table of figures that were measured together.
type section struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// More that is printed as columns, in this order; the rest is in JSON only. None: all of it, in words.
	Columns []string `json:"columns,omitempty"`
	Rows    []line   `json:"rows"`
}

// line is one thing measured, several times.
type line struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Values []float64          `json:"values,omitempty"` // by round
	Median float64            `json:"median"`
	To     map[string]float64 `json:"to,omitempty"`   // ratios to other lines, medians of the ratios within each round
	More   map[string]float64 `json:"more,omitempty"` // what else was measured
}

// figures collects a section's values by line, in the order in which the lines first appear.
type figures struct {
	section
	more map[string]map[string][]float64
}

func newFigures(name, title string) *figures {
	return &figures{section: section{Name: name, Title: title}, more: map[string]map[string][]float64{}}
}

func (f *figures) find(name string) *line {
	for i := range f.Rows {
		if f.Rows[i].Name == name {
			return &f.Rows[i]
		}
	}
	return nil
}

// add adds a round's value of a line.
func (f *figures) add(name, unit string, value float64) {
	l := f.find(name)
	if l == nil {
		f.Rows = append(f.Rows, line{Name: name, Unit: unit})
		l = f.find(name)
	}
	l.Values = append(l.Values, value)
}

// note adds something else that was measured in the same round as a line.
func (f *figures) note(name, what string, value float64) {
	if f.more[name] == nil {
		f.more[name] = map[string][]float64{}
	}
	f.more[name][what] = append(f.more[name][what], value)
}

// done computes medians, and the ratio of every line to each of the named ones that stand before it.
func (f *figures) done(to ...string) section {
	for i := range f.Rows {
		l := &f.Rows[i]
		l.Median = median(l.Values)
		for what, values := range f.more[l.Name] {
			if l.More == nil {
				l.More = map[string]float64{}
			}
			l.More[what] = median(values)
		}
		for _, name := range to {
			base := f.find(name)
			if base == nil || base == l || base.Unit != l.Unit {
				continue
			}
			var ratios []float64
			for j := range min(len(l.Values), len(base.Values)) {
				ratios = append(ratios, l.Values[j]/base.Values[j])
			}
			if l.To == nil {
				l.To = map[string]float64{}
			}
			l.To[name] = median(ratios)
		}
	}
	return f.section
}

func median(values []float64) float64 { return quantile(values, 0.5) }

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

// number prints three digits that mean something.
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
			s.columns(t)
			continue
		}
		for _, l := range s.Rows {
			fmt.Fprintf(t, "  %s\t%s %s\t%s\t%s\n", l.Name, number(l.Median), l.Unit, ratios(l.To), extras(l))
		}
		_ = t.Flush() // the terminal's errors are nobody's to handle
	}
	fmt.Fprintf(w, "\n%d CPUs, PostgreSQL %s, %s/%s; medians, ratios within each round; %.0f s\n",
		r.Machine.CPUs, r.Machine.PostgreSQL, r.Machine.OS, r.Machine.Arch, r.Seconds)
}

// columns prints a table: a line's own value, and more that was measured with it.
func (s *section) columns(t *tabwriter.Writer) {
	fmt.Fprintf(t, "  \t%s\t%s\n", s.Rows[0].Unit, strings.Join(s.Columns, "\t"))
	for _, l := range s.Rows {
		cells := []string{"  " + l.Name, number(l.Median)}
		for _, name := range s.Columns {
			v, ok := l.More[name]
			if !ok {
				v = math.NaN()
			}
			cells = append(cells, number(v))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // the terminal's errors are nobody's to handle
}

func ratios(to map[string]float64) string {
	var words []string
	for _, name := range sortedKeys(to) {
		words = append(words, fmt.Sprintf("%.2f of %s", to[name], name))
	}
	return strings.Join(words, ", ")
}

func extras(l line) string {
	var words []string
	for _, name := range sortedKeys(l.More) {
		words = append(words, name+" "+number(l.More[name]))
	}
	if len(l.Values) > 1 {
		words = append(words, fmt.Sprintf("[%s to %s]", number(slices.Min(l.Values)), number(slices.Max(l.Values))))
	}
	return strings.Join(words, ", ")
}

func sortedKeys(m map[string]float64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *result) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
