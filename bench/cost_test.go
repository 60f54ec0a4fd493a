package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestCosts checks the ratios: usage for vectors relative to the writer's own.
func TestCosts(t *testing.T) {
	t.Parallel()
	c := newCosts()
	for i, rate := range []int{30, 300} {
		c.add(atRate(rate), nobody, &use{rows: 10, cpu: map[string]time.Duration{ofWriter: time.Millisecond}}, false)
		c.add(atRate(rate), usTable, &use{
			rows: 10, cpu: map[string]time.Duration{
				ofWriter: time.Millisecond, ofBackends: time.Duration(i+1) * time.Millisecond, ofPlugin: time.Millisecond,
			},
			wal: walUse{by: [2]map[string]int64{{"Heap": 990, "Btree": 10}, {"docs": 990, "": 100}}},
		}, false)
		c.ratios(atRate(rate), []string{nobody, usTable})
	}
	p := &place{sizes: sizes{cost: []int{30, 300}}}
	c.show(p)
	sections := p.sections
	rows := sections[0].Rows
	last := rows[len(rows)-1]
	if last.Name != "300/s, "+usTable || last.Median != 300 || last.More[overWriter] != 3 || last.More[withWriter] != 4 {
		t.Errorf("%+v", last)
	}
	if managers := sections[2].Rows; len(managers) != 1 || managers[0].More["30/s"] != 99 {
		t.Errorf("what is little is left out: %+v", managers)
	}
	var out bytes.Buffer
	(&result{Sections: sections}).print(&out)
	if !strings.Contains(out.String(), "us/row  "+overWriter) || !strings.Contains(out.String(), "no relation") {
		t.Errorf("no heads of columns or no line in:\n%s", out.String())
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ backend, application, want string }{
		{"walsender", "embedsidecar/x", ofWalsender},
		{"client backend", writerApplication, ofWriter},
		{"client backend", "bench", ofBench},
		{"client backend", "embedsidecar/x", ofBackends},
		{"client backend", "", ofBackends},
		{"parallel worker", "embedsidecar/x", ofBackends},
		{"autovacuum worker", "", ofServer},
		{"io worker", "", ofServer},
	} {
		if got := kindOf(c.backend, c.application); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
