package metrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// counterOf and gaugeOf return the metric with a name.
func (m *Metrics) counterOf(name string) *prometheus.CounterVec {
	return m.vectors[name].(*prometheus.CounterVec)
}

func (m *Metrics) gaugeOf(name string) *prometheus.GaugeVec {
	return m.vectors[name].(*prometheus.GaugeVec)
}

var update = flag.Bool("update", false, "rewrite the golden files")

// all makes each metric once.
func all() *Metrics {
	m := New(Build{Version: "1.0.0", Revision: "abc"}, health.Codes())
	s := m.Source("main", "docs_slot")
	for _, g := range []Gauge{s.CheckpointSaved, s.LastMessage, s.SlotLag, s.SlotRetained, s.SlotSafe, s.WorkerBusyRatio} {
		g.Set(1)
	}
	s.SlotStatus.Only("reserved")
	s.Workers.Set("idle", 2)
	p := s.Pipeline("public.docs")
	for _, g := range []Gauge{p.Oldest, p.Paused, p.Coverage, p.Budget, p.ScanRunning, p.ScanExpected, p.ScanSeen} {
		g.Set(1)
	}
	p.Tasks.Set("todo", 1)
	p.Index.Only("ready")
	p.State.Only("working")
	s.Labelled("public.docs", nil, map[string]string{"project": "search"})
	m.Embedder("minilm", "onnx")
	plugin := m.Plugin("onnx")
	plugin.Up(true, "1.0.0")
	plugin.CircuitOpen.Set(0)
	m.Pool("queue").Set("idle", 1)
	m.Databases().Set("working", 1)
	m.Request("search", "POST", 200, time.Millisecond)
	return m
}

func TestNew_IsCleanForPromlint(t *testing.T) {
	problems, err := testutil.GatherAndLint(all())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Dashboards and alerts depend on names and labels: a change must be noticed.
func TestNames(t *testing.T) {
	families, err := all().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace+"_") {
			continue
		}
		var lines []string
		for _, metric := range f.GetMetric() {
			var labels []string
			for _, l := range metric.GetLabel() {
				value := l.GetValue()
				if l.GetName() == "goversion" {
					value = "go"
				}
				labels = append(labels, l.GetName()+"="+value)
			}
			lines = append(lines, fmt.Sprintf("  {%s}\n", strings.Join(labels, " ")))
		}
		slices.Sort(lines)
		fmt.Fprintf(&b, "%s %s\n%s", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(lines, ""))
	}
	path := filepath.Join("testdata", "names.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCounters_StartAtZero(t *testing.T) {
	families, err := all().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetType() != dto.MetricType_COUNTER || !strings.HasPrefix(f.GetName(), namespace) {
			continue
		}
		for _, metric := range f.GetMetric() {
			if metric.GetCounter().GetValue() != 0 {
				t.Errorf("%s = %v", f.GetName(), metric)
			}
		}
	}
}

func TestPipeline_LabelsAreCapped(t *testing.T) {
	m := New(Build{}, health.Codes())
	s := m.Source("main", "slot")
	for i := range MaxPipelines + 3 {
		s.Pipeline(fmt.Sprint("p", i)).Retries.Inc()
	}
	s.Pipeline("p0").Retries.Inc() // exists already: keeps its own label
	if got := testutil.CollectAndCount(m.counterOf("task_retries_total")); got != MaxPipelines+1 {
		t.Errorf("%d lines", got)
	}
	if got := testutil.ToFloat64(m.counterOf("task_retries_total").WithLabelValues("main", Other)); got != 3 {
		t.Errorf("other = %v", got)
	}
	if got := testutil.ToFloat64(m.counterOf("task_retries_total").WithLabelValues("main", "p0")); got != 2 {
		t.Errorf("p0 = %v", got)
	}
	s.Pipeline("p0").Crashes.Inc()
	s.Forget("p0")
	for name, v := range m.vectors {
		if n := v.DeletePartialMatch(prometheus.Labels{"pipeline": "p0"}); n > 0 {
			t.Errorf("%s: %d lines of the pipeline that is gone", name, n)
		}
	}
	s.Pipeline("new").Retries.Inc()
	if got := testutil.ToFloat64(m.counterOf("task_retries_total").WithLabelValues("main", "new")); got != 1 {
		t.Errorf("new = %v", got)
	}
}

func TestCounters_UnplannedValuesCountAsOther(t *testing.T) {
	p := New(Build{}, health.Codes()).Source("main", "slot").Pipeline("p")
	p.Finished.At("embedded").Inc()
	p.Finished.At("something new").Inc()
	p.Finished.At("and another").Inc()
	if got := testutil.ToFloat64(p.Finished.At("other")); got != 2 {
		t.Errorf("other = %v", got)
	}
	p.Tasks.Set("something new", 1) // must not panic
}

func TestGauges_Only(t *testing.T) {
	m := New(Build{}, health.Codes())
	s := m.Source("main", "slot")
	s.SlotStatus.Only("extended")
	s.SlotStatus.Only("lost")
	for status, want := range map[string]float64{"lost": 1, "extended": 0, "reserved": 0} {
		if got := testutil.ToFloat64(m.gaugeOf("slot_wal_status").WithLabelValues("main", "slot", status)); got != want {
			t.Errorf("%s = %v", status, got)
		}
	}
}

// Before the first measurement, coverage is unknown: 0 would raise an alarm, 1 would hide one.
func TestGauge_IsUnknownUntilSet(t *testing.T) {
	m := New(Build{}, health.Codes())
	p := m.Source("main", "slot").Pipeline("p")
	if n := testutil.CollectAndCount(m.gaugeOf("coverage_ratio")); n != 0 {
		t.Errorf("%d lines before", n)
	}
	p.Coverage.Set(0.5)
	if n := testutil.CollectAndCount(m.gaugeOf("coverage_ratio")); n != 1 {
		t.Errorf("%d lines after", n)
	}
	p.Coverage.Unset()
	if n := testutil.CollectAndCount(m.gaugeOf("coverage_ratio")); n != 0 {
		t.Errorf("%d lines when unset", n)
	}
	p.Index.Only("building")
	if n := testutil.CollectAndCount(m.gaugeOf("vector_index_state")); n != len(IndexStates) {
		t.Errorf("%d lines of an index", n)
	}
	p.Index.Unset()
	if n := testutil.CollectAndCount(m.gaugeOf("vector_index_state")); n != 0 {
		t.Errorf("%d lines of an index that nobody knows", n)
	}
}

func TestFollow(t *testing.T) {
	m := New(Build{}, health.Codes())
	s := m.Source("main", "slot")
	var total atomic.Int64
	m.Follow(s.Transactions, total.Load)
	for _, step := range []struct{ total, want int64 }{{5, 5}, {5, 5}, {3, 5}, {9, 9}} {
		total.Store(step.total)
		if _, err := m.Gather(); err != nil {
			t.Fatal(err)
		}
		if got := testutil.ToFloat64(s.Transactions); got != float64(step.want) {
			t.Errorf("total %d: %v, want %d", step.total, got, step.want)
		}
	}
}

func TestPlugin_Up(t *testing.T) {
	m := New(Build{}, health.Codes())
	p := m.Plugin("onnx")
	p.Up(false, "")
	p.Up(true, "1.0.0")
	p.Up(true, "1.1.0")
	if n := testutil.CollectAndCount(m.gaugeOf("plugin_up")); n != 1 {
		t.Errorf("%d lines", n)
	}
	if got := testutil.ToFloat64(m.gaugeOf("plugin_up").WithLabelValues("onnx", "1.1.0")); got != 1 {
		t.Errorf("up = %v", got)
	}
}

var _ prometheus.Gatherer = (*Metrics)(nil)

// With several databases the label database has their names, and the metrics of a removed one vanish.
func TestSeveral_NamesTheDatabaseAndForgetsIt(t *testing.T) {
	m := New(Build{}, health.Codes())
	m.Several()
	s := m.Source("tenant_a", "slot")
	s.Pipeline("docs").Retries.Inc()
	m.Source("tenant_b", "other").Pipeline("docs")
	lines := func(database string) (n int) {
		t.Helper()
		families, err := m.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				for _, l := range metric.GetLabel() {
					if l.GetName() == "database" && l.GetValue() == database {
						n++
					}
				}
			}
		}
		return n
	}
	if lines("tenant_a") == 0 || lines("tenant_a") != lines("tenant_b") {
		t.Errorf("%d lines of one database, %d of the other", lines("tenant_a"), lines("tenant_b"))
	}
	s.Close()
	if lines("tenant_a") != 0 || lines("tenant_b") == 0 {
		t.Errorf("%d lines of the database that is gone, %d of the other", lines("tenant_a"), lines("tenant_b"))
	}
	for i := range MaxSources + 2 {
		m.Source(fmt.Sprint("db", i), "slot")
	}
	if got := testutil.CollectAndCount(m.gaugeOf("up")); got != MaxSources {
		t.Errorf("%d databases are shown, want %d", got, MaxSources)
	}
}
