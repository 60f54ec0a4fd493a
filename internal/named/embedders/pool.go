package embedders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Pool holds the plugins in use: one host for each plugin and model, shared by all pipelines. It is safe for concurrent
// use.
type Pool struct {
	source Source

	mu     sync.Mutex
	hosts  map[pipeline.ModelName]*Hosted
	before []*Hosted // embedders of the pool that this one will replace, for reuse
}

// Hosted is a plugin with a model.
type Hosted struct {
	Runner
	Plugin string
	key    pipeline.ModelName // the first name by which a pipeline used it
	found  config.Embedder

	mu    sync.Mutex
	meter *Measured          // nil: not measured
	path  string             // of its program
	seen  host.Stats         // at the last count
	about *embed.Description // the model's description; nil: not yet queried
}

// Describe queries the model's description and keeps it.
func (h *Hosted) Describe(ctx context.Context) (embed.Description, error) {
	d, err := h.Runner.Describe(ctx)
	if err == nil {
		h.mu.Lock()
		h.about = &d
		h.mu.Unlock()
	}
	return d, err
}

// Described returns the model's description, or nil if it was not queried yet.
func (h *Hosted) Described() *embed.Description {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.about
}

// Model returns the model's name, or "" before it was described.
func (h *Hosted) Model() string {
	if about := h.Described(); about != nil {
		return about.Model
	}
	return ""
}

// Measure returns the embedder with metrics, always the same one. It does not call the plugin, so one that does not
// start blocks nobody.
func (h *Hosted) Measure(of func(model, plugin string) *metrics.Embedder) *Measured {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.meter == nil {
		h.meter = &Measured{Hosted: h, of: of}
	}
	return h.meter
}

// Count adds to the metrics what the plugin did since the last call.
func (h *Hosted) Count(now host.Stats, m *metrics.Plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Restarts.Add(float64(max(now.Restarts(), h.seen.Restarts()) - h.seen.Restarts()))
	m.BadAnswers.Add(float64(max(now.BadAnswers, h.seen.BadAnswers) - h.seen.BadAnswers))
	h.seen = now
}

// New returns an empty pool. Plugins start at their first use; the caller closes the pool.
func New(source Source) *Pool {
	return &Pool{source: source, hosts: map[pipeline.ModelName]*Hosted{}}
}

// Get returns the embedder that a pipeline names. The name may come from the database, so it must be configured or
// registered here. The plugin starts at its first use.
func (e *Pool) Get(plugin, model string) (*Hosted, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := pipeline.ModelName{Plugin: plugin, Model: model}
	if h, ok := e.hosts[key]; ok {
		return h, nil
	}
	c, err := e.source.Registered()
	if err != nil {
		return nil, err
	}
	if err := c.Known(plugin, model); err != nil {
		return nil, err
	}
	r, found, err := e.source.Runner(plugin, model)
	if err != nil {
		return nil, err
	}
	for _, other := range slices.AppendSeq(slices.Clone(e.before), maps.Values(e.hosts)) {
		if sameEmbedder(other.found, found) {
			e.hosts[key] = other // the same embedder by another name
			return other, r.Close()
		}
	}
	e.hosts[key] = &Hosted{Runner: r, Plugin: found.Plugin, key: key, found: found, path: found.PluginPath}
	return e.hosts[key], nil
}

// sameEmbedder reports whether one process can serve both, whatever pipelines call them.
func sameEmbedder(a, b config.Embedder) bool {
	a.Plugin = b.Plugin
	if a.ModelPath != "" {
		a.Model = b.Model
	}
	return reflect.DeepEqual(a, b)
}

// Described returns a model's description, or nil if it was not queried yet. It starts nothing.
func (e *Pool) Described(key pipeline.ModelName) *embed.Description {
	e.mu.Lock()
	h := e.hosts[key]
	e.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.Described()
}

// All returns the embedders that were requested so far.
func (e *Pool) All() []*Hosted {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*Hosted, 0, len(e.hosts))
	for _, h := range e.hosts {
		if !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// Next returns a pool for another configuration, which shares the unchanged embedders. The caller passes it to Become,
// or calls its Leave to stop the others.
func (e *Pool) Next(source Source) *Pool {
	next := New(source)
	next.before = e.All()
	return next
}

// Leave stops the embedders of a pool that another one does not share.
func (e *Pool) Leave(other *Pool) error { return closeAll(apart(e.All(), other.All())) }

// Become replaces the configuration and the embedders by those of a pool from Next. The returned function stops the
// unused embedders, after their last call.
func (e *Pool) Become(next *Pool) (leave func() error) {
	old := e.All()
	e.mu.Lock()
	keys := slices.Collect(maps.Keys(e.hosts))
	e.mu.Unlock()
	for _, key := range keys { // stored pipelines may use it, although it is not configured
		_, _ = next.Get(key.Plugin, key.Model)
	}
	next.mu.Lock()
	source, hosts := next.source, next.hosts
	next.mu.Unlock()
	e.mu.Lock()
	e.source, e.hosts = source, hosts
	e.mu.Unlock()
	gone := apart(old, e.All())
	return func() error { return closeAll(gone) }
}

// apart returns the elements of a list that are not in another.
func apart(list, others []*Hosted) []*Hosted {
	return slices.DeleteFunc(list, func(h *Hosted) bool { return slices.Contains(others, h) })
}

// Describe queries the embedder of each pipeline. It joins the errors, and returns the other descriptions even so.
func (e *Pool) Describe(ctx context.Context, specs []pipeline.Spec) (map[string]embed.Description, error) {
	described, failed := e.DescribeEach(ctx, specs)
	var problems []error
	told := map[pipeline.ModelName]bool{}
	for _, spec := range specs {
		if err := failed[spec.Name]; err != nil && !told[spec.ModelName()] { // once per plugin
			problems = append(problems, err)
			told[spec.ModelName()] = true
		}
	}
	return described, errors.Join(problems...)
}

// DescribeEach queries the embedder of each pipeline, and returns descriptions and errors by pipeline name.
func (e *Pool) DescribeEach(ctx context.Context, specs []pipeline.Spec) (map[string]embed.Description,
	map[string]error,
) {
	described, failed := map[string]embed.Description{}, map[string]error{}
	answers := e.describeAll(ctx, specs)
	for _, spec := range specs {
		answer := answers[spec.ModelName()]
		err := answer.err
		if err == nil {
			err = e.tokenizes(ctx, spec)
		}
		if err == nil && spec.Batch.On() && !answer.d.Batches {
			err = problem.New(problem.Usage, fmt.Errorf("pipeline %q: batch jobs are configured, but model %q does not support them",
				spec.Name, answer.d.Model), "leave out batch, or take a model whose provider has batch jobs: docs/remote.md")
		}
		if err != nil {
			failed[spec.Name] = err
			continue
		}
		described[spec.Name] = answer.d
	}
	return described, failed
}

// description is an embedder's description, or an error.
type description struct {
	d   embed.Description
	err error
}

// describeAll queries each embedder once, in parallel, because they take seconds to start.
func (e *Pool) describeAll(ctx context.Context, specs []pipeline.Spec) map[pipeline.ModelName]*description {
	answers := map[pipeline.ModelName]*description{}
	var asking sync.WaitGroup
	for _, spec := range specs {
		key := spec.ModelName()
		if answers[key] != nil {
			continue
		}
		answer := &description{}
		answers[key] = answer
		asking.Go(func() { answer.d, answer.err = e.DescribeOne(ctx, spec) })
	}
	asking.Wait()
	return answers
}

// DescribeOne queries the embedder of one pipeline.
func (e *Pool) DescribeOne(ctx context.Context, spec pipeline.Spec) (embed.Description, error) {
	h, err := e.Get(spec.Plugin, spec.Model)
	if err != nil {
		return embed.Description{}, ofPipeline(spec, err)
	}
	d, err := h.Describe(ctx)
	if err == nil && d.Reranks {
		err = problem.New(problem.Usage, fmt.Errorf("model %q is a reranker: it makes no vectors", d.Model),
			"name a model that makes vectors, and this one for searches: search: {rerank: MODEL}")
	}
	return d, ofPipeline(spec, err)
}

// tokenizes checks that the embedder can count tokens if the chunking needs it.
func (e *Pool) tokenizes(ctx context.Context, spec pipeline.Spec) error {
	if spec.Chunking.Strategy != pipeline.ChunkTokens {
		return nil
	}
	h, err := e.Get(spec.Plugin, spec.Model)
	if err != nil {
		return ofPipeline(spec, err)
	}
	_, err = h.Tokenize(ctx, []string{"token"})
	if errors.Is(err, embed.ErrNoTokens) {
		return problem.New(problem.Usage, fmt.Errorf(
			"pipeline %q: the chunking strategy tokens needs the model's tokenizer, and plugin %q does not tell where tokens end", spec.Name, h.Plugin),
			"strategy: sentences or markdown do with an estimate",
			"a plugin answers the method Tokenize of the contract: docs/plugins.md")
	}
	return ofPipeline(spec, err)
}

// ofPipeline adds the pipeline's name to an error of its embedder.
func ofPipeline(spec pipeline.Spec, err error) error {
	return wrap.Errorf(err, "the embedder of pipeline %q", spec.Name)
}

// Matching returns the embedder of a stored pipeline, if its vectors were made with it.
func (e *Pool) Matching(ctx context.Context, p *pipeline.Pipeline) (*Hosted, error) {
	d, err := e.DescribeOne(ctx, p.Spec)
	if err != nil {
		return nil, err
	}
	if !p.MadeBy(d) {
		return nil, problem.New(problem.Usage, fmt.Errorf(
			"pipeline %q: the embedder is not the one its vectors were made with: its model %q of plugin %q has changed",
			p.Name, p.Model, p.Plugin),
			"start with the previous model: --model, --model-dir, --plugin, --plugin-dir",
			"a new model needs a pipeline with another name and destination")
	}
	return e.Get(p.Plugin, p.Model)
}

// Close stops all plugins and waits for their processes.
func (e *Pool) Close() error { return closeAll(e.All()) }

func closeAll(list []*Hosted) error {
	var wg sync.WaitGroup
	problems := make([]error, len(list))
	for i, h := range list {
		wg.Go(func() { problems[i] = h.Close() })
	}
	wg.Wait()
	return errors.Join(problems...)
}
