// Package metrics defines all metrics in one place: the meaning, unit and labels of each.
//
// Other packages do not use Prometheus' vectors: they get a Source, a Pipeline or an Embedder with the labels already
// set, and call Inc, Set or Observe on its fields. Every counter exists, at 0, as soon as its owner is made, so that
// rates work from the first scrape. Labels come from small fixed sets and from the names of pipelines, of which only
// the first 200 get their own; keys, texts and error messages are never labels.
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

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
)

const namespace = "embedsidecar"

// Other is the label of pipelines beyond the first MaxPipelines. Databases beyond the first MaxSources have no metrics.
const (
	Other        = "_other"
	MaxPipelines = 200
	MaxSources   = 100
)

// Build describes the program's build.
type Build struct {
	Version  string
	Revision string
}

// Metrics has the registry and makes its metrics. It is safe for concurrent use.
type Metrics struct {
	Registry *prometheus.Registry

	states []string // of pipelines

	mu        sync.Mutex
	vectors   map[string]vector // by name
	pipelines map[[2]string]bool
	sources   map[string]bool
	several   bool
	before    map[int]func()
	next      int // key for the next one
}

// New returns a registry that includes metrics of the Go runtime, the process and the build. states are the possible
// states of a pipeline.
func New(build Build, states []string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), vectors: map[string]vector{}, pipelines: map[[2]string]bool{},
		sources: map[string]bool{}, before: map[int]func(){}, states: states,
	}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	labelled{of: m}.with("version", build.Version).with("revision", build.Revision).with("goversion", runtime.Version()).
		gauge("build_info", "Always 1; the labels identify the running program.").Set(1)
	return m
}

// Several adds the label database to the metrics of databases, because there are several.
func (m *Metrics) Several() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.several = true
}

// Gather calls the functions of BeforeGather and then reads all metrics. It implements prometheus.Gatherer.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.mu.Lock()
	several := m.several
	before := lists.Map(slices.Sorted(maps.Keys(m.before)), func(at int) func() { return m.before[at] })
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

// labelDatabase adds the label database to a metric of a source.
func labelDatabase(metric *dto.Metric) {
	at := slices.IndexFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "source" })
	if at < 0 {
		return
	}
	name := "database"
	metric.Label = append(metric.Label, &dto.LabelPair{Name: &name, Value: metric.Label[at].Value})
	slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// BeforeGather registers f to be called at the start of each scrape, for values that are cheap to read. f may run
// concurrently and must not block. The returned function unregisters it.
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

// Follow keeps a counter equal to a total that is counted elsewhere and never falls. The returned function ends that.
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

// pipelineLabel returns the name of a pipeline, or Other if there are too many.
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

// labelled has the common labels of some metrics, with their values.
type labelled struct {
	of            *Metrics
	names, values []string
}

// with returns l with one more label.
func (l labelled) with(name, value string) labelled {
	return labelled{l.of, append(slices.Clip(l.names), name), append(slices.Clip(l.values), value)}
}

// vector is a metric vector of any kind.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

// vectorOf returns the metric with a name, which it makes at the first use. A wrong name or label is a bug of this
// package, which its tests find.
func vectorOf[V vector](l labelled, name string, fresh func() V) V {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	known, ok := l.of.vectors[name].(V)
	if !ok {
		known = fresh()
		l.of.Registry.MustRegister(known)
		l.of.vectors[name] = known
	}
	return known
}

// remove removes all metrics with these labels.
func (l labelled) remove() {
	labels := prometheus.Labels{}
	for i, name := range l.names {
		labels[name] = l.values[i]
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	for _, v := range l.of.vectors {
		v.DeletePartialMatch(labels)
	}
}

func (l labelled) gauge(name, help string, more ...string) Gauge {
	return Gauge{vectorOf(l, name, func() *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
			slices.Concat(l.names, more))
	}), l.values}
}

// gauges returns gauges that differ in a last label.
func (l labelled) gauges(name, help, label string, values []string) Gauges {
	return Gauges{l.gauge(name, help, label), values}
}

func (l labelled) counterVec(name, help string, more ...string) *prometheus.CounterVec {
	return vectorOf(l, name, func() *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
			slices.Concat(l.names, more))
	})
}

func (l labelled) counter(name, help string) prometheus.Counter {
	return l.counterVec(name, help).WithLabelValues(l.values...)
}

// counters returns counters that differ in a last label. They exist from now on, at 0.
func (l labelled) counters(name, help, label string, values []string) Counters {
	v, c := l.counterVec(name, help, label), Counters{planned: map[string]prometheus.Counter{}}
	c.with = func(value string) prometheus.Counter {
		return v.WithLabelValues(append(slices.Clip(l.values), value)...)
	}
	for _, value := range values {
		c.planned[value] = c.with(value)
	}
	return c
}

// The resolution of native histograms is about 10 %, with at most this many buckets. Scrapers without native histograms
// get the given classic buckets.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

// Buckets of durations: from a millisecond, as in an idle sidecar, to the minutes and hours of a backlog.
var (
	shortTimes = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	longTimes  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 14400}
	batchSizes = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

func (l labelled) histogram(name, help string, buckets []float64) prometheus.Observer {
	return vectorOf(l, name, func() *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			Buckets: buckets, NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
		}, l.names)
	}).WithLabelValues(l.values...)
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

// Embedder returns the metrics of a model and its plugin.
func (m *Metrics) Embedder(model, plugin string) *Embedder {
	of := labelled{of: m}.with("model", model)
	both := of.with("plugin", plugin)
	return &Embedder{
		Embeddings: both.counters("embeddings_total", "Texts sent to an embedder or a reranker.", "outcome", EmbedOutcomes),
		Duration:   both.histogram("embedding_duration_seconds", "Time of a call to an embedder or a reranker.", shortTimes),
		BatchRows:  of.histogram("embedding_batch_rows", "Texts in a call to an embedder or a reranker.", batchSizes),
		Tokens:     of.counter("embedding_tokens_total", "Tokens seen by the model."),
		Truncated:  of.counter("embedding_truncated_total", "Texts cut at the end because they exceed the model's limit."),
		CacheHits: of.counter("embedding_cache_hits_total",
			"Vectors reused because the same model had embedded the same text before."),
		CacheMisses: of.counter("embedding_cache_misses_total", "Texts for which no vector could be reused."),
	}
}

// Plugin holds the metrics of a plugin's processes.
type Plugin struct {
	Restarts    prometheus.Counter
	BadAnswers  prometheus.Counter
	CircuitOpen Gauge // 1 or 0

	of labelled
	up *prometheus.GaugeVec
}

// Plugin returns the metrics of a plugin.
func (m *Metrics) Plugin(name string) *Plugin {
	of := labelled{of: m}.with("plugin", name)
	return &Plugin{
		Restarts:    of.counter("plugin_restarts_total", "Restarts of the plugin's process."),
		BadAnswers:  of.counter("plugin_bad_answers_total", "Invalid answers of the plugin."),
		CircuitOpen: of.gauge("circuit_open", "1 while nothing is sent to the plugin because it fails too often, else 0."),
		of:          of,
		up:          of.gauge("plugin_up", "1 while the plugin's process runs and has described itself, else 0.", "version").vec,
	}
}

// Up sets whether the plugin runs, and its version ("" before its first start). It removes the series of other
// versions.
func (p *Plugin) Up(up bool, version string) {
	p.up.DeletePartialMatch(prometheus.Labels{"plugin": p.of.values[0]})
	p.up.WithLabelValues(p.of.values[0], version).Set(Bool(up))
}

// Pool returns the gauges of a connection pool, by PoolStates.
func (m *Metrics) Pool(name string) Gauges {
	return labelled{of: m}.with("pool", name).gauges("db_pool_connections", "Connections of a pool by state.", "state",
		PoolStates)
}

// Databases returns the gauges of the number of databases by DatabaseStates.
func (m *Metrics) Databases() Gauges {
	return labelled{of: m}.gauges("databases", "Databases of this sidecar by state, if several are configured.", "state",
		DatabaseStates)
}

// Request counts an answered request. The handler and the method come from small fixed sets.
func (m *Metrics) Request(handler, method string, status int, took time.Duration) {
	labelled{of: m}.with("handler", handler).with("method", method).with("code", strconv.Itoa(status)).
		histogram("http_request_duration_seconds", "Time of a query, from its header to its answer.", shortTimes).
		Observe(took.Seconds())
}

// Bool returns 1 for true and 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
