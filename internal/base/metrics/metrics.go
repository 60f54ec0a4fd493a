// Package metrics names everything the program counts, in one place: what each metric means, its unit and its labels.
//
// Parts that work do not know Prometheus' vectors: they get a Source, a Pipeline or an Embedder whose labels are
// already set, and call Inc, Set or Observe on its fields. Every counter is there, at 0, from the moment its owner is
// made, so that rates work from the first scrape. Labels come from small fixed sets and from the names of pipelines,
// of which only the first 200 get their own; no key, text or error message is ever one.
package metrics

import (
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

const namespace = "embedsidecar"

// Other is the label of pipelines beyond the first MaxPipelines.
const (
	Other        = "_other"
	MaxPipelines = 200
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
	before    []func()
}

// New returns a registry that also tells about the Go runtime, the process and the build.
func New(build Build) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), pipelines: map[[2]string]bool{}}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.v = newVectors(m.Registry)
	m.v.build.WithLabelValues(build.Version, build.Revision, runtime.Version()).Set(1)
	return m
}

// Gather runs what BeforeGather was given and then reads all metrics. It makes Metrics a prometheus.Gatherer.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.mu.Lock()
	before := slices.Clone(m.before)
	m.mu.Unlock()
	for _, f := range before {
		f()
	}
	return m.Registry.Gather()
}

// BeforeGather has f called at the start of each scrape, for values that are cheap to read and not worth keeping up to
// date all the time. f may run in several goroutines at once and must not block.
func (m *Metrics) BeforeGather(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = append(m.before, f)
}

// Follow keeps a counter level with a total that somebody else counts. The total must not fall.
func (m *Metrics) Follow(c prometheus.Counter, total func() int64) {
	var mu sync.Mutex
	var last int64
	m.BeforeGather(func() {
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

type factory struct{ r *prometheus.Registry }

func (f factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return register(f.r, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
		labels))
}

func (f factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(f.r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
		labels))
}

// Scrapers that know native histograms get a resolution of about 10 %, at most this many buckets; others get the
// classic buckets given.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

func (f factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(f.r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help,
		Buckets: buckets, NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets,
	}, labels))
}
