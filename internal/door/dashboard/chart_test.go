package dashboard

import (
	"cmp"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// TestChart_LabelsAreWithinThePicture: the last time and the longest figure are not cut off, counts have no halves, and
// small prices are written out.
func TestChart_LabelsAreWithinThePicture(t *testing.T) {
	t.Parallel()
	var read report.Past
	slow := 960.0
	for i := range 61 {
		p := report.Point{At: time.Date(2026, 11, 26, 14, 15+i, 0, 0, time.UTC)}
		p.P50, p.P99, p.Rate, p.Price, p.Failed = &slow, &slow, 1, 0.0000096, int64(i%2)
		read.Points = append(read.Points, p)
	}
	read.Total.Price = 1
	all := pastOf(read, "/").Charts
	monday := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	for step := range 48 { // every time of a day or a week as the last
		for _, w := range report.Windows[1:] {
			read.Points = read.Points[:0]
			for i := range int(w.Length / w.Step) {
				read.Points = append(read.Points, report.Point{At: monday.Add(time.Duration(step+i) * w.Step)})
			}
			all = append(all, pastOf(read, "/").Charts...)
		}
	}
	label := regexp.MustCompile(`<text x="([0-9.]+)" y="[0-9.]+" text-anchor="(end|middle)">([^<]*)</text>`)
	half := regexp.MustCompile(`>0\.5`)
	for i := range all {
		drawn := string(all[i].Draw())
		found := label.FindAllStringSubmatch(drawn, -1)
		if len(found) < 5 {
			t.Errorf("%s has %d labels", all[i].ID, len(found))
		}
		for _, l := range found {
			x, _ := strconv.ParseFloat(l[1], 64)
			wide := sign * float64(len(l[3]))
			left, right := x-wide, x
			if l[2] == "middle" {
				left, right = x-wide/2, x+wide/2
			}
			if left < 0 || right > chartWide {
				t.Errorf("%s: %q is from %.0f to %.0f of %.0f", all[i].ID, l[3], left, right, chartWide)
			}
		}
		if all[i].ID == "failures" && half.MatchString(drawn) {
			t.Error("half a row failed")
		}
	}
}

// TestChart_EndsWithTheLastWholeStep: an incomplete step would look like a drop. Each of several pipelines has a line
// in each chart, and its columns of the table.
func TestChart_EndsWithTheLastWholeStep(t *testing.T) {
	t.Parallel()
	one := func(name string, rate float64) report.Past {
		past := report.Past{Pipelines: []string{name}}
		for i := range 4 {
			p := report.Point{At: time.Date(2026, 11, 26, 14, 20*i, 0, 0, time.UTC), Seconds: 1200}
			p.Rate, p.Tokens = rate, 1000
			past.Points = append(past.Points, p)
		}
		past.Points[3].Seconds, past.Points[3].Tokens = 60, 1
		return past
	}
	a, b := one("a", 1), one("b", 2)
	b.Points = b.Points[:2] // read a moment earlier
	p := pastOf(a, "/", a, b)
	if len(p.Rows) != 3 || len(p.Rows[0]) != 1+2*5 || len(p.Columns) != 2*5 {
		t.Errorf("%v of %v", p.Rows, p.Columns)
	}
	for i := range p.Charts {
		c := &p.Charts[i]
		if len(c.Lines) != 2 || c.Lines[0].Name != "a" || c.Lines[1].Name != "b" || len(c.Lines[1].Values) != 3 {
			t.Errorf("%s: %+v", c.ID, c.Lines)
		}
		for _, l := range c.Lines {
			if figure := p.Rows[1][l.Column+1]; figure != c.Format(*cmp.Or(l.Values[1], new(0.0))) && l.Values[1] != nil {
				t.Errorf("%s of %s: %s", c.ID, l.Name, figure)
			}
		}
	}
	if got := p.Rows[2][1] + " " + p.Rows[2][2]; got != "1 –" {
		t.Errorf("rows a second: %s", got)
	}
}
