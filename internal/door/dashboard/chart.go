package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Charts are pictures within the page, made of shapes with classes: a style within a page is refused by the policy.
// Each says in words what it shows, for who cannot see it.

// sparkline draws values from left to right, as a line over the ground of 0.
func sparkline(values []float64, label string) template.HTML {
	const width, height, pad = 160.0, 36.0, 3.0
	if len(values) == 1 {
		values = []float64{values[0], values[0]}
	}
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var line strings.Builder
	for i, v := range values {
		x := float64(i) / float64(len(values)-1) * width
		y := height - pad
		if top > 0 {
			y -= v / top * (height - 2*pad)
		}
		if i > 0 {
			line.WriteByte(' ')
		}
		fmt.Fprintf(&line, "%.1f,%.1f", x, y)
	}
	area := ""
	if len(values) > 0 {
		area = fmt.Sprintf(`<polygon class="area" points="0,%.0f %s %.0f,%.0f"/><polyline class="line" points="%s"/>`,
			height, line.String(), width, height, line.String())
	}
	return markup(`<svg class="spark" viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" role="img" aria-label="%s">%s</svg>`,
		width, height, template.HTMLEscapeString(label), area)
}

// bar draws a part of 1.
func bar(part float64, kind, label string) template.HTML {
	const width = 100.0
	part = math.Max(0, math.Min(1, part))
	return markup(`<svg class="bar %s" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<rect class="track" width="100" height="8"/><rect class="fill" width="%.2f" height="8"/></svg>`,
		kind, template.HTMLEscapeString(label), part*width)
}

// column is one column of a chart: parts that stand on each other.
type column struct {
	Good, Bad float64
}

// columns draws columns beside each other.
func columns(list []column, label string) template.HTML {
	const width, height = 600.0, 80.0
	top := 0.0
	for _, c := range list {
		top = max(top, c.Good+c.Bad)
	}
	var b strings.Builder
	step := width / float64(max(len(list), 1))
	for i, c := range list {
		y := height
		for _, part := range []struct {
			value float64
			class string
		}{{c.Good, "good"}, {c.Bad, "bad"}} {
			if part.value <= 0 || top == 0 {
				continue
			}
			tall := math.Max(1, part.value/top*height)
			y -= tall
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
				part.class, float64(i)*step, y, step*0.8, tall) //nolint:mnd // a gap of a fifth
		}
	}
	return markup(`<svg class="columns" viewBox="0 0 %.0f %.0f" preserveAspectRatio="none" role="img" aria-label="%s">`+
		`<line class="axis" x1="0" y1="80" x2="600" y2="80"/>%s</svg>`, width, height, template.HTMLEscapeString(label),
		b.String())
}

// markup writes a picture. What comes from elsewhere is escaped by who calls it.
func markup(format string, args ...any) template.HTML {
	return template.HTML(fmt.Sprintf(format, args...)) //nolint:gosec // numbers, classes of ours, and escaped labels
}
