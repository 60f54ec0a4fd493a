package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// Charts are inline SVG with classes, because the policy forbids inline styles. Each has a text alternative, and a
// table beside it has the figures.

func bar(part float64, kind, label string) template.HTML {
	const width = 100.0
	part = math.Max(0, math.Min(1, part))
	return markup(`<svg class="bar %s" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<rect class="track" width="100" height="8"/><rect class="fill" width="%.2f" height="8"/></svg>`,
		kind, template.HTMLEscapeString(label), part*width)
}

// line is one line of a chart; a nil value means that nothing was measured.
type line struct {
	Name   string // in the legend; "": the only line
	Values []*float64
	Column int // column of the table with the figures
}

// chart has lines over a period. It holds no text of a user.
type chart struct {
	ID, Title, Unit string
	Now             string // the total
	Lines           []line
	Times           []time.Time
	Step            time.Duration
	Format          func(float64) string
	Tick            func(float64) string // format of the labels of the grid
	Powers          bool                 // logarithmic scale
	Whole           bool                 // counts: no values between 0 and 1
	Failures        bool                 // shows failures
}

// The size of a chart, and of its plot.
const (
	chartWide, chartHigh                     = 360.0, 158.0
	plotLeft, plotRight, plotTop, plotBottom = 62.0, 340.0, 8.0, 132.0
	sign                                     = 6.8 // width of a character in the charts' font
)

// Draw renders the chart.
func (c *chart) Draw() template.HTML {
	ticks := c.ticks()
	low, high := ticks[0], ticks[len(ticks)-1]
	y := func(v float64) float64 {
		if c.Powers {
			v, lowest := math.Log10(math.Max(v, low)), math.Log10(low)
			return plotBottom - (v-lowest)/(math.Log10(high)-lowest)*(plotBottom-plotTop)
		}
		return plotBottom - v/high*(plotBottom-plotTop)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart%s" viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="%s-t %s-d">`+
		`<title id="%s-t">%s</title><desc id="%s-d">%s</desc>`, c.class(), chartWide, chartHigh, c.ID, c.ID, c.ID,
		c.Title, c.ID, c.describe())
	for _, tick := range ticks {
		fmt.Fprintf(&b, `<path class="grid" d="M%.0f %.1fH%.0f"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, y(tick), plotRight, plotLeft-6, y(tick)+4, c.Tick(tick)) // beside the line
	}
	for i, at := range c.Times {
		if word := c.when(at); word != "" {
			middle := min(c.x(i), chartWide-sign*float64(len(word))/2)
			fmt.Fprintf(&b, `<path class="tick" d="M%.1f %.0fv4"/><text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`,
				c.x(i), plotBottom, middle, chartHigh-8, word)
		}
	}
	for i := range c.Lines {
		c.path(&b, i, y)
	}
	fmt.Fprintf(&b, `<path class="cursor" d="M0 %.0fV%.0f" visibility="hidden"/></svg>`, plotTop, plotBottom)
	return markup("%s", b.String())
}

func (c *chart) class() string {
	if c.Failures {
		return " wrong"
	}
	return ""
}

func (c *chart) x(i int) float64 {
	return plotLeft + float64(i)/float64(max(len(c.Times)-1, 1))*(plotRight-plotLeft)
}

// path draws a line with gaps where nothing was measured, and the area below it if it is the only one.
func (c *chart) path(b *strings.Builder, number int, y func(float64) float64) {
	var d, area strings.Builder
	begun := false
	for i, v := range c.Lines[number].Values {
		switch alone := i+1 == len(c.Lines[number].Values) || c.Lines[number].Values[i+1] == nil; {
		case v == nil:
		case !begun && alone:
			fmt.Fprintf(&d, "M%.1f %.1fh3", c.x(i)-1.5, y(*v)) // a visible stroke
		case !begun:
			fmt.Fprintf(&d, "M%.1f %.1f", c.x(i), y(*v))
		default:
			fmt.Fprintf(&d, "L%.1f %.1f", c.x(i), y(*v))
		}
		begun = v != nil
	}
	if len(c.Lines) == 1 && d.Len() > 0 && !strings.Contains(d.String()[1:], "M") {
		fmt.Fprintf(&area, `<path class="area" d="%sL%.1f %.0fH%.0fZ"/>`, d.String(), c.x(len(c.Times)-1), plotBottom,
			plotLeft)
	}
	fmt.Fprintf(b, `%s<path class="line l%d" d="%s"/>`, area.String(), number, d.String())
}

// most returns the smallest value above 0 and the largest value of all lines.
func (c *chart) most() (least, most float64) {
	least = math.Inf(1)
	for _, l := range c.Lines {
		for _, v := range l.Values {
			if v != nil {
				most = max(most, *v)
				if *v > 0 {
					least = min(least, *v)
				}
			}
		}
	}
	return least, most
}

// ticks returns the values of the grid lines, from bottom to top.
func (c *chart) ticks() (list []float64) {
	least, most := c.most()
	if c.Powers {
		if most <= 0 {
			least, most = 0.01, 1
		}
		low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		for p := low; p <= max(high, low+1); p++ {
			list = append(list, math.Pow(10, p))
		}
		return list
	}
	top := 1.0
	if most > 0 {
		size := math.Pow(10, math.Floor(math.Log10(most)))
		for _, times := range []float64{1, 2, 5, 10} {
			if top = times * size; top >= most {
				break
			}
		}
	}
	if c.Whole && top == 1 {
		return []float64{0, top}
	}
	return []float64{0, top / 2, top}
}

// when returns the label of a time; "": none.
func (c *chart) when(at time.Time) string {
	at = at.UTC()
	quarter, part := 15, 6 // minutes, hours
	switch {
	case c.Step < time.Hour && c.Step > time.Minute && at.Minute() == 0 && at.Hour()%part == 0,
		c.Step <= time.Minute && at.Minute()%quarter == 0:
		return at.Format("15:04")
	case c.Step >= time.Hour && at.Hour() == 0:
		return at.Format("2 Jan")
	}
	return ""
}

// describe returns the text alternative.
func (c *chart) describe() string {
	if len(c.Times) == 0 {
		return "Nothing was measured."
	}
	_, most := c.most()
	return fmt.Sprintf("%s, from %s to %s UTC. The most: %s. The table below has all figures.", c.Unit,
		c.Times[0].UTC().Format("2 Jan 15:04"), c.Times[len(c.Times)-1].UTC().Format("2 Jan 15:04"), c.Format(most))
}

// markup formats SVG. Callers must escape text from elsewhere.
func markup(format string, args ...any) template.HTML {
	return template.HTML(fmt.Sprintf(format, args...)) //nolint:gosec // numbers, classes of ours, and escaped labels
}
