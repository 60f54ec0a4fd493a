//go:build linux

package e2e

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// drawTenants prints what was measured as the table of docs/databases.md, and draws it.
func drawTenants(t *testing.T, all []tenants, file string) {
	t.Helper()
	table := "| | active | CPU, all idle | connections, all idle; some active | memory | first lone change | p50 | p99 |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, m := range all {
		table += fmt.Sprintf("| %d %s | %d | %.1f %% | %.1f; %.1f | %d MiB | %d ms | %d ms | %d ms |\n", m.n, m.form, m.active(),
			100*m.cpu, m.connections, m.working, m.mib, m.first, m.median, m.p99)
	}
	t.Logf("\n%s", table)
	if file == "" {
		return
	}
	panels := ""
	for i, p := range []struct {
		title string
		of    func(m tenants) float64
	}{
		{"ms until a lone change is embedded, p99", func(m tenants) float64 { return float64(m.p99) }},
		{"memory at most, MiB", func(m tenants) float64 { return float64(m.mib) }},
		{"% of a core, all idle", func(m tenants) float64 { return 100 * m.cpu }},
		{"connections, a tenth active", func(m tenants) float64 { return m.working }},
	} {
		panels += fmt.Sprintf("<g transform=\"translate(%d %d)\">%s</g>\n", 20+i%2*360, 20+i/2*220, panel(p.title, all, p.of))
	}
	picture := `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 470" font-family="sans-serif" font-size="12">
<rect width="740" height="470" fill="#fff"/>
<text x="50" y="462" fill="#06c">tenants as databases</text><text x="200" y="462" fill="#c60">tenants as schemas</text>
` + panels + "</svg>\n"
	if err := os.WriteFile(file, []byte(picture), 0o644); err != nil {
		t.Fatal(err)
	}
}

// panel is one plot over the number of tenants, which is a logarithm: a line for each form.
func panel(title string, all []tenants, of func(m tenants) float64) string {
	const width, height = 300.0, 160.0
	highest := 1.0
	for _, m := range all {
		highest = max(highest, of(m))
	}
	across := func(m tenants) float64 { return 30 + width*math.Log10(float64(m.n))/math.Log10(200) }
	b := new(strings.Builder)
	fmt.Fprintf(b, `<text x="30" y="8" font-weight="bold">%s</text><path d="M30 16V%[2]g H%[3]g" fill="none" stroke="#888"/>`,
		title, 16+height, 34+width)
	for _, form := range []struct{ name, color string }{{databases, "#06c"}, {schemas, "#c60"}} {
		line := ""
		for _, m := range all {
			if m.form != form.name {
				continue
			}
			x, y := across(m), 16+height*(1-of(m)/(1.1*highest))
			line += fmt.Sprintf("%.0f,%.0f ", x, y)
			fmt.Fprintf(b, `<circle cx="%.0f" cy="%.0f" r="3" fill="%s"/>`, x, y, form.color)
			fmt.Fprintf(b, `<text x="%.0f" y="%.0f" fill="%s">%.3g</text>`, x+5, y-5, form.color, of(m))
			fmt.Fprintf(b, `<text x="%.0f" y="%g" text-anchor="middle">%d</text>`, x, 30+height, m.n)
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s"/>`, strings.TrimSpace(line), form.color)
	}
	return b.String()
}
