package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Many pipelines are read together, and the report of each is the same as if read alone.
func TestP10_ManyPipelinesAreAskedTogether(t *testing.T) {
	t.Parallel()
	const pipelines = 120
	for name, c := range map[string]struct {
		change func(*memory)
		upTo   int64
		asked  map[string]int
		rows   int64
	}{
		"small tables": {func(*memory) {}, 100, map[string]int{"small": 1, "all": 2, "ledger": 1}, 8},
		"they turn out to be large": {
			func(m *memory) { m.size = 1000 }, 20,
			map[string]int{"small": 1, "all": 2, "plan": pipelines, "ledger": 1},
			21,
		},
		"one of them is large": {
			func(m *memory) { m.small = m.small[1:] }, 100,
			map[string]int{"small": 1, "all": 2, "plan": 1, "rows": 1, "ledger": 1},
			8,
		},
		"they cannot be counted together": {
			func(m *memory) { m.refuse = map[string]error{"all": errors.New("locked")} }, 100,
			map[string]int{"small": 1, "all": 2, "plan": pipelines, "rows": pipelines, "ledger": 1},
			8,
		},
		"nobody knows which are small": {
			func(m *memory) { m.refuse = map[string]error{"small": errors.New("no")} }, 100,
			map[string]int{"small": 1, "plan": pipelines, "rows": pipelines, "ledger": 1},
			8,
		},
		"nobody asks for rows": {func(*memory) {}, -1, map[string]int{}, 90},
		"few pipelines": {
			func(m *memory) { m.installed, m.small = m.installed[:many-1], m.small[:many-1] }, 100,
			map[string]int{"small": 1, "all": 1, "ledger": 1},
			8,
		},
	} {
		for _, atOnce := range []int{1, 4} { // connections
			m := installation()
			one := m.installed[0]
			m.installed = nil
			for i := range pipelines {
				one.ID, one.Name, one.Table = int32(i+1), fmt.Sprint("docs", i), fmt.Sprint("docs", i)
				m.installed = append(m.installed, one)
				table := database.Quote(one.Schema, one.Table)
				m.small, m.plans[table] = append(m.small, table), `[{"Plan": {"Plan Rows": 10}}]`
			}
			c.change(m)
			st, err := Options{CountUpTo: c.upTo}.read(t.Context(), m, atOnce)
			if err != nil || len(st.Pipelines) != len(m.installed) {
				t.Errorf("%s: %d pipelines, %v", name, len(st.Pipelines), err)
				continue
			}
			asked := map[string]int{}
			for _, what := range m.asked {
				if strings.Contains("small all plan rows ledger", what) {
					asked[what]++
				}
			}
			if fmt.Sprint(asked) != fmt.Sprint(c.asked) {
				t.Errorf("%s: asked for %v, want %v", name, asked, c.asked)
			}
			for i := range st.Pipelines {
				if p := &st.Pipelines[i]; p.Rows != c.rows || c.upTo > 0 && p.Known != 6 {
					t.Errorf("%s: %s has %d rows, want %d; %d are known", name, p.Name, p.Rows, c.rows, p.Known)
				}
			}
		}
	}
	m := installation()
	m.installed = append(m.installed, make([]Pipeline, many)...)
	m.refuse = map[string]error{"ledger": errors.New("no")}
	if _, err := (Options{}).read(t.Context(), m, 1); !errors.Is(err, m.refuse["ledger"]) {
		t.Errorf("what is known cannot be read: %v", err)
	}
}

func TestBatchLine(t *testing.T) {
	t.Parallel()
	if line := BatchLine("docs", nil); line != "" {
		t.Errorf("no job: %q", line)
	}
	want := "docs: batch job is collecting rows since 1 min: about 20 rows; " +
		"batch job batch_1 runs since 2 min: 30 texts, 400 tokens, price 0.50; the provider answers 500"
	if line := BatchLine("docs", []BatchJob{
		{State: "gathering", Rows: 20, Seconds: 60},
		{State: "running", Job: "batch_1", Texts: 30, Tokens: 400, Price: 0.5, Seconds: 120, Message: "the provider answers 500"},
	}); line != want {
		t.Errorf("%q, want %q", line, want)
	}
}
