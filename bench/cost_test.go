package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestPlot checks that the plot is XML and that each subject has a point at each rate.
func TestPlot(t *testing.T) {
	t.Parallel()
	sizes := costSizes{rates: []int{30, 300}, subjects: []string{writerAlone, usTable}}
	c := newCosts(sizes, false)
	for i, rate := range sizes.rates {
		c.add(atRate(rate), writerAlone, &use{rows: 10, cpu: map[string]time.Duration{ofWriter: time.Millisecond}})
		c.add(atRate(rate), usTable, &use{
			rows: 10, cpu: map[string]time.Duration{
				ofWriter: time.Millisecond, ofBackends: time.Duration(i+1) * time.Millisecond, ofPlugin: time.Millisecond,
			},
		})
		c.ratios(atRate(rate))
	}
	svg := c.plot()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	circles := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, svg)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "circle" {
			circles++
		}
	}
	if want := len(sizes.rates) * len(sizes.subjects); circles != want || bytes.Contains(svg, []byte("NaN")) {
		t.Errorf("%d points, want %d:\n%s", circles, want, svg)
	}

	cpu := c.sections()[0]
	last := cpu.Rows[len(cpu.Rows)-1]
	if last.Name != "300/s, "+usTable || last.Median != 300 || last.More[overWriter] != 3 || last.More[withWriter] != 4 {
		t.Errorf("%+v", last)
	}
	var out bytes.Buffer
	(&result{Sections: []section{cpu}}).print(&out)
	if !strings.Contains(out.String(), "us/row  "+overWriter) {
		t.Errorf("no heads of columns in:\n%s", out.String())
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
