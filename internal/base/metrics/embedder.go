package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
