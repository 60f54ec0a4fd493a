package embedders

import (
	"context"
	"fmt"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Runner is an embedder with one model, wherever it runs: in processes of a plugin, in this one, or behind another
// transport. It starts nothing before its first use, and several goroutines may call it at the same time.
type Runner interface {
	embed.Embedder
	embed.Tokenizer
	embed.Reranker
	embed.Batcher
	// Stats is what it has done so far. It is cheap, and what it has no word for stays empty.
	Stats() host.Stats
	// Reload makes it what is found now, and no call fails for it. On an error it goes on as it was.
	Reload(ctx context.Context, now config.Embedder) error
	// Close ends it and waits for that.
	Close() error
}

// transports make runners, by the transport that manifests name.
var transports = map[string]func(Source, config.Embedder) (Runner, error){
	"": func(s Source, found config.Embedder) (Runner, error) { return s.process(found) },
}

// Runner finds the plugin and the model, and returns what runs them. Empty names mean the defaults. The caller closes
// it.
func (s Source) Runner(plugin, model string) (Runner, config.Embedder, error) {
	found, err := s.find(plugin, model)
	if err != nil {
		return nil, found, err
	}
	open, known := transports[found.Transport]
	if !known {
		return nil, found, fmt.Errorf("plugin %q: there is no transport %q", found.Plugin, found.Transport)
	}
	r, err := open(s, found)
	if err != nil {
		return nil, found, problem.New(problem.Usage, err)
	}
	return r, found, nil
}

// process is a runner in processes of a plugin.
type process struct {
	*host.Host
	source Source
}

func (s Source) process(found config.Embedder) (Runner, error) {
	h, err := host.New(s.options(found))
	return process{h, s}, err
}

// Reload implements Runner.
func (p process) Reload(ctx context.Context, now config.Embedder) error {
	return p.Host.Reload(ctx, p.source.options(now))
}
