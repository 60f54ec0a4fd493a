package dashboard

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// TestChart_LabelsAreWithinThePicture: neither the last time nor the longest figure is cut, counts have no halves, and
// small amounts of money are written out.
func TestChart_LabelsAreWithinThePicture(t *testing.T) {
	t.Parallel()
	const sign = 6.8 // wide, of the font that charts have
	var read report.Past
	slow := 960.0
	for i := range 61 {
		p := report.Point{At: time.Date(2026, 11, 26, 14, 15+i, 0, 0, time.UTC)}
		p.P50, p.P99, p.Rate, p.Price, p.Failed = &slow, &slow, 1, 0.0000096, int64(i%2)
		read.Points = append(read.Points, p)
	}
	read.Total.Price = 1
	label := regexp.MustCompile(`<text x="([0-9.]+)" y="[0-9.]+" text-anchor="(end|middle)">([^<]*)</text>`)
	half := regexp.MustCompile(`>0\.5`)
	charts := pastOf(read, "/").Charts
	for i := range charts {
		drawn := string(charts[i].Draw())
		found := label.FindAllStringSubmatch(drawn, -1)
		if len(found) < 5 {
			t.Errorf("%s has %d labels", charts[i].ID, len(found))
		}
		for _, l := range found {
			x, _ := strconv.ParseFloat(l[1], 64)
			wide := sign * float64(len(l[3]))
			left, right := x-wide, x
			if l[2] == "middle" {
				left, right = x-wide/2, x+wide/2
			}
			if left < 0 || right > chartWide {
				t.Errorf("%s: %q is from %.0f to %.0f of %.0f", charts[i].ID, l[3], left, right, chartWide)
			}
		}
		if charts[i].ID == "failures" && half.MatchString(drawn) {
			t.Error("half a row failed")
		}
	}
}
