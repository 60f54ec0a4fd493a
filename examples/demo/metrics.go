package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counters are the sidecar's own counters, added up over its starts: a new process begins at 0.
type counters struct {
	mu     sync.Mutex
	starts []map[string]float64 // the last look at each start's
}

// set notes what start n (from 1) has counted.
func (c *counters) set(n int, values map[string]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.starts) < n {
		c.starts = append(c.starts, nil)
	}
	c.starts[n-1] = values
}

// get returns a counter's sum over all its labels that include those given, "outcome=written".
func (c *counters) get(name string, labels ...string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum float64
	for _, values := range c.starts {
	series:
		for series, value := range values {
			family, rest, _ := strings.Cut(series, "{")
			if family != "embedsidecar_"+name {
				continue
			}
			for _, label := range labels {
				if !strings.Contains(rest, "{"+label+"}") {
					continue series
				}
			}
			sum += value
		}
	}
	return int64(sum)
}

// scrape looks at the counters of the running sidecar. One that does not answer keeps what it said last.
func (s *sidecar) scrape(ctx context.Context) {
	s.mu.Lock()
	ops, n := s.ops, s.starts
	s.mu.Unlock()
	if values, err := readMetrics(ctx, "http://"+ops+"/metrics"); err == nil {
		s.counts.set(n, values)
	}
}

// scrapeAlways does it every second until the process ends.
func (s *sidecar) scrapeAlways(ctx context.Context, c *child) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
			s.scrape(ctx)
		}
	}
}

// readMetrics returns all counters at an address, by name and labels: "name{{a=1}{b=2}".
func readMetrics(ctx context.Context, url string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for name, family := range families {
		if family.GetType() != dto.MetricType_COUNTER {
			continue
		}
		for _, m := range family.GetMetric() {
			var series strings.Builder
			series.WriteString(name + "{")
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&series, "{%s=%s}", l.GetName(), l.GetValue())
			}
			values[series.String()] = m.GetCounter().GetValue()
		}
	}
	return values, nil
}
