// Package metrics names everything the program counts, in one place: what each metric means, its unit and its labels.
//
// Parts that work do not know Prometheus' vectors: they get a Source, a Pipeline or an Embedder whose labels are
// already set, and call Inc, Set or Observe on its fields. Every counter is there, at 0, from the moment its owner is
// made, so that rates work from the first scrape. Labels come from small fixed sets and from the names of pipelines,
// of which only the first 200 get their own; no key, text or error message is ever one.
package metrics

import (
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

const namespace = "embedsidecar"

// Other is the label of pipelines beyond the first MaxPipelines. Databases beyond the first MaxSources are not shown.
const (
	Other        = "_other"
	MaxPipelines = 200
	MaxSources   = 100
)

// Build is what the program says of itself.
type Build struct {
	Version  string
	Revision string
}

// Metrics is the registry and the makers of what is in it. It is safe for concurrent use.
type Metrics struct {
	Registry *prometheus.Registry

	v vectors

	mu        sync.Mutex
	pipelines map[[2]string]bool
	sources   map[string]bool
	several   bool
	before    map[int]func()
	next      int // of before
}

// New returns a registry that also tells about the Go runtime, the process and the build.
func New(build Build) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), pipelines: map[[2]string]bool{}, sources: map[string]bool{},
		before: map[int]func(){},
	}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.v = newVectors(m.Registry)
	m.v.build.WithLabelValues(build.Version, build.Revision, runtime.Version()).Set(1)
	return m
}

// Several has what is told of a database have its name as the label database, too: there are several.
func (m *Metrics) Several() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.several = true
}

// Gather runs what BeforeGather was given and then reads all metrics. It makes Metrics a prometheus.Gatherer.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.mu.Lock()
	several := m.several
	var before []func()
	for _, at := range slices.Sorted(maps.Keys(m.before)) {
		before = append(before, m.before[at])
	}
	m.mu.Unlock()
	for _, f := range before {
		f()
	}
	families, err := m.Registry.Gather()
	if several {
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				labelDatabase(metric)
			}
		}
	}
	return families, err
}

// labelDatabase gives a metric of a source the label database.
func labelDatabase(metric *dto.Metric) {
	at := slices.IndexFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "source" })
	if at < 0 {
		return
	}
	name := "database"
	metric.Label = append(metric.Label, &dto.LabelPair{Name: &name, Value: metric.Label[at].Value})
	slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// BeforeGather has f called at the start of each scrape, for values that are cheap to read and not worth keeping up to
// date all the time. f may run in several goroutines at once and must not block. The function it returns ends that.
func (m *Metrics) BeforeGather(f func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.next
	m.next++
	m.before[at] = f
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.before, at)
	}
}

// Follow keeps a counter level with a total that somebody else counts. The total must not fall. The function it returns
// ends that.
func (m *Metrics) Follow(c prometheus.Counter, total func() int64) (stop func()) {
	var mu sync.Mutex
	var last int64
	return m.BeforeGather(func() {
		mu.Lock()
		defer mu.Unlock()
		if now := total(); now > last {
			c.Add(float64(now - last))
			last = now
		}
	})
}

// pipelineLabel is the name of a pipeline, or Other when there are too many already.
func (m *Metrics) pipelineLabel(source, name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{source, name}
	if !m.pipelines[key] {
		if len(m.pipelines) >= MaxPipelines {
			return Other
		}
		m.pipelines[key] = true
	}
	return name
}

// register makes a metric known; a mistake in its name or labels is one of this package and shows in its tests.
func register[C prometheus.Collector](r *prometheus.Registry, c C) C {
	r.MustRegister(c)
	return c
}

type factory struct {
	r         *prometheus.Registry
	ofSources []vec // those with the label source
}

// labelled registers a metric with its labels open, and keeps it where it is of a source.
func labelled[V interface {
	prometheus.Collector
	vec
}](f *factory, v V, labels []string) V {
	if slices.Contains(labels, "source") {
		f.ofSources = append(f.ofSources, v)
	}
	return register(f.r, v)
}

func (f *factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
	return labelled(f, prometheus.NewCounterVec(opts, labels), labels)
}

func (f *factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	opts := prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
	return labelled(f, prometheus.NewGaugeVec(opts, labels), labels)
}

// Scrapers that know native histograms get a resolution of about 10 %, at most this many buckets; others get the
// classic buckets given.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

func (f *factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return labelled(f, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets: buckets, NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
	}, labels), labels)
}

// Embedder holds the metrics of one model in one plugin.
type Embedder struct {
	Embeddings  Counters            // by EmbedOutcomes
	Duration    prometheus.Observer // seconds
	BatchRows   prometheus.Observer // texts
	Tokens      prometheus.Counter
	Truncated   prometheus.Counter
	CacheHits   prometheus.Counter
	CacheMisses prometheus.Counter
}

// Embedder returns the metrics of a model and the plugin that runs it.
func (m *Metrics) Embedder(model, plugin string) *Embedder {
	v := m.v
	return &Embedder{
		Embeddings: counters(EmbedOutcomes, func(o string) prometheus.Counter {
			return v.embeddings.WithLabelValues(model,
				plugin, o)
		}),
		Duration:    v.embedDuration.WithLabelValues(model, plugin),
		BatchRows:   v.batchRows.WithLabelValues(model),
		Tokens:      v.tokens.WithLabelValues(model),
		Truncated:   v.truncated.WithLabelValues(model),
		CacheHits:   v.cacheHits.WithLabelValues(model),
		CacheMisses: v.cacheMisses.WithLabelValues(model),
	}
}

// Plugin holds the metrics of a plugin's process.
type Plugin struct {
	Restarts    prometheus.Counter
	BadAnswers  prometheus.Counter
	CircuitOpen Gauge // 1 or 0

	up   *prometheus.GaugeVec
	name string
}

// Plugin returns the metrics of a plugin.
func (m *Metrics) Plugin(name string) *Plugin {
	return &Plugin{
		Restarts:    m.v.pluginRestarts.WithLabelValues(name),
		BadAnswers:  m.v.pluginBad.WithLabelValues(name),
		CircuitOpen: Gauge{m.v.circuitOpen, []string{name}},
		up:          m.v.pluginUp,
		name:        name,
	}
}

// Up reports whether the plugin runs, and in which version ("" before its first start). Another version's line goes
// away.
func (p *Plugin) Up(up bool, version string) {
	p.up.DeletePartialMatch(prometheus.Labels{"plugin": p.name})
	p.up.WithLabelValues(p.name, version).Set(Bool(up))
}

// Pool returns the gauges of a connection pool, by PoolStates.
func (m *Metrics) Pool(name string) Gauges {
	return Gauges{Gauge{m.v.pool, []string{name}}, PoolStates}
}

// Databases returns the gauges of how many databases are in a state, by DatabaseStates.
func (m *Metrics) Databases() Gauges { return Gauges{Gauge{m.v.databases, nil}, DatabaseStates} }

// Request notes a query that was answered. The handler and the method come from small fixed sets.
func (m *Metrics) Request(handler, method string, status int, took time.Duration) {
	m.v.http.WithLabelValues(handler, method, strconv.Itoa(status)).Observe(took.Seconds())
}

// Bool is 1 for true and 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
