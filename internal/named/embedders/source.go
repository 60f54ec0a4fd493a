// Package embedders runs the plugins in use: it finds them, starts each once for all pipelines that use it, reloads
// them, and measures them.
package embedders

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Source finds plugins and models by the names in pipelines.
type Source struct {
	Config *config.Config
	Find   config.Finder
	Log    *slog.Logger
	Redact func(string) string // removes secrets from a text
	// Brief skips the test texts at the start, for a command that stores no vectors: a provider takes seconds for them,
	// and charges for them.
	Brief bool
}

// canaryInterval is how often plugins are tested with texts whose vectors are known.
const canaryInterval = 5 * time.Minute

// Registered returns the configuration with the currently registered plugins.
func (s Source) Registered() (*config.Config, error) {
	list, err := config.ReadCatalogue(s.Find.Catalogue(s.Config))
	if err != nil {
		return nil, err
	}
	return s.Config.WithRegistered(list), nil
}

// find finds the plugin and the model of a pipeline.
func (s Source) find(plugin, model string) (config.Embedder, error) {
	c, err := s.Registered()
	if err != nil {
		return config.Embedder{}, err
	}
	return c.Embedder(s.Find, plugin, model)
}

// Once returns a host for one command: a single process without memory limit and supervision. It starts at its first
// use. The caller closes it.
func (s Source) Once(found config.Embedder) (*host.Host, error) {
	options := s.options(found)
	options.Processes, options.MemoryLimit, options.Canary, options.Files = 0, 0, 0, nil
	h, err := host.New(options)
	if err != nil {
		return nil, problem.New(problem.Usage, err)
	}
	return h, nil
}

func (s Source) options(found config.Embedder) host.Options {
	options := host.Options{
		Name: found.Plugin, Path: found.PluginPath, SHA256: found.PluginSHA256, Env: found.Env, Log: s.Log,
		Redact:    s.Redact,
		Processes: found.Processes, MemoryLimit: uint64(max(found.MemoryLimit, 0)), Canary: canaryInterval,
	}
	if s.Brief {
		options.Canary = 0
	}
	if found.CallTimeout > 0 {
		options.CallTimeout = host.CallTimeout(found.CallTimeout)
	}
	if found.ModelPath == "" {
		options.Model = found.Model // a name that the plugin knows
	}
	if found.ModelSHA256 != "" && found.ModelPath != "" {
		options.Files = map[string]string{filepath.Join(found.ModelPath, found.Weights()): found.ModelSHA256}
	}
	return options
}

// CountTokens returns the number of tokens that a pipeline's model sees for a text, including the special ones, and its
// limit; 0: unknown.
func (e *Pool) CountTokens(ctx context.Context, p *pipeline.Pipeline, text string) (n, most int, err error) {
	h, err := e.Matching(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	d, err := h.Describe(ctx)
	if err != nil {
		return 0, 0, ofPipeline(p.Spec, err)
	}
	t, err := embed.NewService(h, 0).Tokenize(ctx, []string{text}, false)
	if err != nil {
		return 0, 0, ofPipeline(p.Spec, err)
	}
	return len(t.Ends[0]) + t.Around, d.MaxTokens, nil
}

// Runner runs an embedder with one model. It starts at its first use. It is safe for concurrent use.
type Runner interface {
	embed.Embedder
	embed.Tokenizer
	embed.Reranker
	embed.Batcher
	// Stats returns what it has done so far. It is cheap, and leaves unsupported fields empty.
	Stats() host.Stats
	// Reload replaces it with the current files and settings, without failing calls. On an error it continues
	// unchanged.
	Reload(ctx context.Context, now config.Embedder) error
	// Close stops it and waits for the end.
	Close() error
}

// Runner finds the plugin and the model, and returns a runner for them. Empty names mean the defaults. The caller
// closes it.
func (s Source) Runner(plugin, model string) (Runner, config.Embedder, error) {
	found, err := s.find(plugin, model)
	if err != nil {
		return nil, found, err
	}
	h, err := host.New(s.options(found))
	if err != nil {
		return nil, found, problem.New(problem.Usage, err)
	}
	return process{h, s}, found, nil
}

// process is a Runner with processes of a plugin.
type process struct {
	*host.Host
	source Source
}

// Reload implements Runner.
func (p process) Reload(ctx context.Context, now config.Embedder) error {
	return p.Host.Reload(ctx, p.source.options(now))
}

// Measured is a plugin with metrics. Other methods are passed through.
type Measured struct {
	*Hosted
	of func(model, plugin string) *metrics.Embedder
}

var _ interface {
	embed.Embedder
	embed.Tokenizer
	embed.Reranker
	embed.Batcher
} = (*Measured)(nil)

// Embed implements embed.Embedder.
func (e *Measured) Embed(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	began := time.Now()
	results, err := e.Hosted.Embed(ctx, kind, texts)
	m := e.of(e.name(ctx), e.Plugin)
	m.Duration.Observe(time.Since(began).Seconds())
	m.BatchRows.Observe(float64(len(texts)))
	if err != nil {
		m.Embeddings.At("failed").Add(float64(len(texts)))
		return results, err
	}
	for _, r := range results {
		outcome := "ok"
		switch {
		case r.Err != nil:
			outcome = "failed"
		case r.Empty:
			outcome = "empty"
		}
		m.Embeddings.At(outcome).Inc()
		m.Tokens.Add(float64(r.Tokens))
		if r.Truncated {
			m.Truncated.Inc()
		}
	}
	return results, nil
}

// Rerank implements embed.Reranker.
func (e *Measured) Rerank(ctx context.Context, query string, texts []string) ([]float32, error) {
	began := time.Now()
	scores, err := e.Hosted.Rerank(ctx, query, texts)
	m := e.of(e.name(ctx), e.Plugin)
	m.Duration.Observe(time.Since(began).Seconds())
	m.BatchRows.Observe(float64(len(texts)))
	outcome := "scored"
	if err != nil {
		outcome = "failed"
	}
	m.Embeddings.At(outcome).Add(float64(len(texts)))
	return scores, err
}

// name returns the model's name.
func (e *Measured) name(ctx context.Context) string {
	if e.Model() == "" {
		_, _ = e.Describe(ctx) // on an error it is counted without a name
	}
	return e.Model()
}

// Reload restarts plugins with the current catalog and files: the new process takes over from the old one. Without
// names it reloads all that are in use. On an error a plugin continues unchanged.
func (e *Pool) Reload(ctx context.Context, names []string) []control.Reloaded {
	results := []control.Reloaded{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, h := range e.All() {
		if len(names) > 0 && !slices.Contains(names, h.Plugin) {
			continue
		}
		wg.Go(func() {
			r := control.Reloaded{Plugin: h.Plugin, Result: "reloaded"}
			if err := e.reloadOne(ctx, h); err != nil {
				r.Result, r.Detail = "refused", e.source.Redact(err.Error())
				e.source.Log.ErrorContext(ctx, "plugin not reloaded: it continues unchanged", "plugin", h.Plugin, "error", err,
					"hints", problem.Hints(err))
			} else {
				e.source.Log.InfoContext(ctx, "plugin reloaded", "plugin", h.Plugin, "version", h.Stats().Version)
			}
			r.Model, r.Version = h.Model(), h.Stats().Version
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		})
	}
	wg.Wait()
	slices.SortFunc(results, func(a, b control.Reloaded) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return results
}

func (e *Pool) reloadOne(ctx context.Context, h *Hosted) error {
	found, err := e.source.find(h.key.Plugin, h.key.Model)
	if err != nil {
		return err
	}
	if err := h.Runner.Reload(ctx, found); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.path = found.PluginPath
	return nil
}

// State is the state of one plugin with one model.
type State struct {
	Plugin string
	Model  string // "" before it was described
	Path   string // of its program
	Stats  host.Stats

	// Processes returns the running processes with their memory. It scans all processes of the machine.
	Processes func() []host.Process
}

// States returns the states of the plugins in use.
func (e *Pool) States() []State {
	all := e.All()
	list := make([]State, len(all))
	for i, h := range all {
		stats := h.Stats()
		list[i] = State{
			Plugin: h.Plugin, Model: h.Model(), Stats: stats,
			Processes: func() []host.Process { return host.Measured(stats.Processes) },
		}
		h.mu.Lock()
		list[i].Path = h.path
		h.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b State) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Model, b.Model))
	})
	return list
}
