package report

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

func TestSlot_InOneLine(t *testing.T) {
	t.Parallel()
	safe, beyond := int64(3<<20), int64(-1<<20)
	for want, change := range map[string]func(*Slot){
		"slot docs: streamed by one, 2.0 MB behind, WAL kept 1.0 MB":           func(*Slot) {},
		"slot docs: no sidecar, 2.0 MB behind, WAL kept 1.0 MB":                func(s *Slot) { s.State = health.NoSidecar },
		"slot docs: slot lost, 2.0 MB behind, WAL kept 1.0 MB":                 func(s *Slot) { s.State = health.SlotLost },
		"slot docs: streamed by one, 2.0 MB behind, WAL kept 1.0 MB of 4.0 MB": func(s *Slot) { s.SafeWALBytes = &safe },
		"slot docs: streamed by one, 2.0 MB behind, WAL kept 1.0 MB of 1.0 MB": func(s *Slot) { s.SafeWALBytes = &beyond },
	} {
		s := Slot{Name: "docs", State: Streamed, Reason: "streamed by one", LagBytes: 2 << 20, RetainedBytes: 1 << 20}
		change(&s)
		if got := s.Line(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A scan shows its progress if known, and never 100% while rows are left.
func TestPipeline_InAWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Pipeline)
		want   string
	}{
		"nothing is known of the table": {func(p *Pipeline) { p.ScanExpected = 0 }, "backfill"},
		"it has just begun":             {func(p *Pipeline) { p.ScanSeen = 0 }, "backfill 0%"},
		"it is nearly over":             {func(p *Pipeline) { p.ScanSeen = 999 }, "backfill 99%"},
		"more than were expected":       {func(p *Pipeline) { p.ScanSeen = 2000 }, "backfill 100%"},
		"orphans are looked for":        {func(p *Pipeline) { p.ScanPhase = "orphans" }, "backfill 100%"},
		"its rate is known":             {func(p *Pipeline) { p.ScanRate = 12.4 }, "backfill 50%, 12/s"},
		"and how long it takes":         {func(p *Pipeline) { p.ScanRate, p.ScanLeft = 12.4, 40 }, "backfill 50%, 12/s, 40 s"},
		"another comparison":            {func(p *Pipeline) { p.State = health.Comparing }, health.Comparing.Word() + " 50%"},
		"no scan runs":                  {func(p *Pipeline) { p.State = health.Working }, health.Working.Word()},
	} {
		p := Pipeline{State: health.Backfill, ScanPhase: "rows", ScanSeen: 500, ScanExpected: 1000}
		if c.change(&p); p.Word() != c.want {
			t.Errorf("%s: %q, want %q", name, p.Word(), c.want)
		}
	}
}

// A pipeline whose rows only wait for a retry is not at work.
func TestPipeline_AtWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    Pipeline
		want bool
	}{
		"all is done":      {Pipeline{State: health.UpToDate}, true},
		"rows wait":        {Pipeline{State: health.Working, Pending: 1, Retrying: 5}, true},
		"a row is at work": {Pipeline{State: health.Working, Running: 1}, true},
		"only tried again": {Pipeline{State: health.Working, Retrying: 5}, false},
		"it is paused":     {Pipeline{State: health.Paused, Pending: 1}, false},
	} {
		if got := c.p.AtWork(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
