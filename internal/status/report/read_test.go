package report

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// installation has one pipeline whose table has 8 rows, 6 of them known. Its last ANALYZE saw 90, and the planner
// expects 10.
func installation() *memory {
	return &memory{
		set: []Slot{{Name: "docs", State: Streamed}}, running: []Sidecar{{Slot: "docs", Instance: "one", Stream: health.Streaming}},
		installed: []Pipeline{{
			ID: 7, Name: "docs", Slot: "docs", Schema: "public", Table: "docs", Generation: 1, Status: active, Enabled: true,
			State: health.UpToDate, Reason: "every row", Works: true, Rows: 90, RowsEstimated: true,
		}},
		plans: map[string]string{`"public"."docs"`: `[{"Plan": {"Plan Rows": 10}}]`}, size: 8, ledger: 6,
	}
}

// P10: figures of a table are counted, or marked as estimates, or left out, depending on the options.
func TestP10_ReadLooksAsHardAsItIsTold(t *testing.T) {
	t.Parallel()
	const all = "plan rows ledger"
	for name, c := range map[string]struct {
		change    func(*memory)
		o         Options
		asked     string // queries about the table and the ledger
		rows      int64
		estimated bool
		coverage  float64
	}{
		"a small table":                {func(*memory) {}, Options{}, all, 8, false, 0.75},
		"a large one":                  {func(*memory) {}, Options{CountUpTo: 9}, "plan ledger", 10, true, 0.6},
		"larger than the planner's":    {func(m *memory) { m.size = 1000 }, Options{CountUpTo: 20}, all, 21, true, 6. / 21},
		"nobody asks for it":           {func(*memory) {}, Options{CountUpTo: -1}, "plan", 10, true, -1},
		"nor for the ledger":           {func(*memory) {}, Options{Uncovered: true}, "plan rows", 8, false, -1},
		"nobody may look":              {func(m *memory) { m.plans = nil }, Options{}, "plan ledger", 90, true, 6. / 90},
		"the planner says nothing":     {func(m *memory) { m.plans[`"public"."docs"`] = "?" }, Options{}, all, 8, false, 0.75},
		"nobody may look, or ever has": {func(m *memory) { m.plans, m.installed[0].Rows = nil, 0 }, Options{}, "plan ledger", 0, true, -1},
		"it cannot be counted": {
			func(m *memory) { m.refuse = map[string]error{"rows": errors.New("no")} }, Options{}, all, 10, true, 0.6,
		},
		"it is gone": {func(m *memory) {
			m.installed[0].Status, m.installed[0].Detail, m.installed[0].Rows = string(pipeline.Missing), "gone", 0
		}, Options{}, "ledger", 0, true, 0},
	} {
		m := installation()
		c.change(m)
		st, err := c.o.read(t.Context(), m, 1)
		if err != nil || len(st.Pipelines) != 1 {
			t.Errorf("%s: %+v, %v", name, st, err)
			continue
		}
		asked := strings.Join(slices.DeleteFunc(m.asked, func(what string) bool {
			return !strings.Contains(all, what)
		}), " ")
		p := st.Pipelines[0]
		if asked != c.asked || p.Rows != c.rows || p.RowsEstimated != c.estimated || p.CoverageOr(-1) != c.coverage {
			t.Errorf("%s: asked for %s, %d rows, estimated %t, coverage %g", name, asked, p.Rows,
				p.RowsEstimated, p.CoverageOr(-1))
		}
		if p.State == "" || p.Reason == "" {
			t.Errorf("%s: its state is %q (%s)", name, p.State, p.Reason)
		}
	}
	m, o := installation(), Options{Counts: &Counts{}}
	for range 2 {
		if st, err := o.read(t.Context(), m, 1); err != nil || st.Pipelines[0].Known != 6 {
			t.Errorf("again: %+v, %v", st, err)
		}
	}
	if at := slices.Index(m.asked, "ledger"); slices.Contains(m.asked[at+1:], "ledger") {
		t.Errorf("who remembers counts again: %v", m.asked)
	}
}

// A report with a missing part fails, unless the role lacks rights on a table.
func TestRead_EndsWithWhatCouldNotBeRead(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"slots", "sidecars", "pipelines", "ledger"} {
		m, broken := installation(), errors.New("broken")
		m.refuse = map[string]error{what: broken}
		if _, err := (Options{}).read(t.Context(), m, 1); !errors.Is(err, broken) {
			t.Errorf("%s: %v after %v", what, err, m.asked)
		}
	}
}

// P10: rows are counted up to a limit. If there are more, the estimated time is a lower bound.
func TestP10_ATimeThatIsTheLeastSaysSo(t *testing.T) {
	t.Parallel()
	for pending, least := range map[int64]bool{taskCap - 1: false, taskCap: true} {
		m := installation()
		m.installed[0].Pending = pending
		m.running[0].Speeds = map[int32]speed.Speed{7: {Rows: 10}}
		st, err := Options{}.read(t.Context(), m, 1)
		if err != nil {
			t.Fatal(err)
		}
		if p := st.Pipelines[0]; p.SecondsLeft != 10_000 || p.AtLeast != least {
			t.Errorf("%d rows: %g s left, at least: %t", pending, p.SecondsLeft, p.AtLeast)
		}
	}
}
