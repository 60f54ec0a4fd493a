package main

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth, plotHeight = 760, 420
	plotLeft, plotRight   = 70, 230 // the legend stands on the right
	plotTop, plotBottom   = 40, 50
)

// colours tell curves apart, for the colour-blind, too (Okabe and Ito).
var colours = []string{"#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2"}

// plot draws the CPU time of a row over the rate, both logarithmic: a lone change costs many times what one of many
// costs, and both are to be seen.
func (c *costs) plot() []byte {
	least, most := math.Inf(1), 0.0
	slowest, fastest := float64(slices.Min(c.sizes.rates)), float64(slices.Max(c.sizes.rates))
	for _, curve := range c.curves {
		for _, values := range curve {
			least, most = min(least, median(values)), max(most, median(values))
		}
	}
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	x := func(rate float64) float64 {
		const one = 0.5 // a single rate stands in the middle
		at := one
		if fastest > slowest {
			at = math.Log(rate/slowest) / math.Log(fastest/slowest)
		}
		return plotLeft + at*(plotWidth-plotLeft-plotRight)
	}
	y := func(us float64) float64 {
		return plotHeight - plotBottom - (math.Log10(us)-low)/(high-low)*(plotHeight-plotTop-plotBottom)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#ffffff"/>
<text x="%d" y="22" font-size="14">CPU of a row beside the writer, microseconds, over single-row commits a second</text>
`, plotWidth, plotHeight, plotLeft)
	for decade := low; decade < high; decade++ {
		for _, step := range []float64{1, 2, 5} {
			grid(&b, y, step*math.Pow(10, decade))
		}
	}
	grid(&b, y, math.Pow(10, high))
	for _, rate := range c.sizes.rates {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d/s</text>`+"\n", x(float64(rate)),
			plotHeight-plotBottom+20, rate)
	}
	for i, name := range c.sizes.subjects {
		curve := c.curves[name]
		colour := colours[i%len(colours)]
		var points strings.Builder
		for _, rate := range slices.Sorted(maps.Keys(curve)) {
			us := median(curve[rate])
			fmt.Fprintf(&points, "%.1f,%.1f ", x(float64(rate)), y(us))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s, %d/s: %s</title></circle>`+"\n",
				x(float64(rate)), y(us), colour, html.EscapeString(name), rate, number(us))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", points.String(),
			colour)
		const line, gap = 20, 20
		at := plotTop + i*line
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="12" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-plotRight+gap, at, colour, plotWidth-plotRight+2*gap, at+10, html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// grid draws a line across, and says what it stands for.
func grid(b *bytes.Buffer, y func(float64) float64, us float64) {
	fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+
		"\n", plotLeft, y(us), plotWidth-plotRight, y(us), plotLeft-8, y(us)+4, us)
}
