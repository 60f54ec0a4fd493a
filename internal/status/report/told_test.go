package report

import (
	"strings"
	"testing"
)

// An unknown coverage is reported as unknown, never as a number.
func TestPipeline_TellsItsCoverage(t *testing.T) {
	t.Parallel()
	half := 0.5
	for want, p := range map[string]*Pipeline{
		"unknown":      {RowsEstimated: true},
		"50.0%":        {Coverage: &half},
		"50.0% (est.)": {Coverage: &half, RowsEstimated: true},
	} {
		if got := p.CoverageWord(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// During a scan, the rows left are the queued ones and those that the scan has not seen, even if there are more rows
// than expected.
func TestPipeline_TellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    Pipeline
		want int64
	}{
		"no scan":        {Pipeline{ScanPhase: "done", Pending: 2, Running: 1, Retrying: 3, ScanExpected: 50}, 6},
		"a scan":         {Pipeline{ScanPhase: "rows", Pending: 2, ScanExpected: 50, ScanSeen: 10}, 42},
		"one that waits": {Pipeline{ScanPhase: "waiting", Rows: 70, ScanExpected: 50}, 70},
		"more are seen":  {Pipeline{ScanPhase: "rows", Pending: 1, ScanExpected: 50, ScanSeen: 60}, 1},
	} {
		if got := c.p.Left(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A group of errors names one of its rows, and says so if the count is capped.
func TestErrorGroup_IsOneLine(t *testing.T) {
	t.Parallel()
	g := ErrorGroup{
		Pipeline: "docs", State: "retrying", Class: "data", Code: "bad", Rows: 1, Key: "7", Message: "it is bad",
	}
	one := g.Line()
	g.State, g.Rows, g.AtLeast = "failed", taskCap, true
	many := g.Line()
	for _, line := range []string{one, many} {
		for _, part := range []string{"docs", "data bad", "row 7", "it is bad"} {
			if !strings.Contains(line, part) {
				t.Errorf("%q does not say %q", line, part)
			}
		}
	}
	if strings.Contains(one, "or more") || !strings.Contains(many, "or more") {
		t.Errorf("%q, %q", one, many)
	}
}
