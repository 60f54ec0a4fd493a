// Package embedders has the plugins in use: it finds them, starts each once for all pipelines that name it, has them
// reloaded, and measures what they do.
package embedders

import (
	"log/slog"
	"path/filepath"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Source finds plugins and models by the names that pipelines have for them.
type Source struct {
	Config *config.Config
	Find   config.Finder
	Log    *slog.Logger
	Redact func(string) string // takes what is secret out of a text
}

// canaryInterval is how often plugins are asked texts whose vectors are known.
const canaryInterval = 5 * time.Minute

// Registered returns the configuration with the plugins that are registered now.
func (s Source) Registered() (*config.Config, error) {
	list, err := config.ReadCatalogue(s.Find.Catalogue(s.Config))
	if err != nil {
		return nil, err
	}
	return s.Config.WithRegistered(list), nil
}

// find finds the plugin and the model that a pipeline names.
func (s Source) find(plugin, model string) (config.Embedder, error) {
	c, err := s.Registered()
	if err != nil {
		return config.Embedder{}, err
	}
	return c.Embedder(s.Find, plugin, model)
}

// Once returns the host of what was found for one command: a single process, by its own limits, which nobody watches.
// It is started at its first use. The caller closes it.
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
	if found.CallTimeout > 0 {
		options.CallTimeout = host.CallTimeout(found.CallTimeout)
	}
	if found.ModelPath == "" {
		options.Model = found.Model // a name the plugin knows
	}
	if found.ModelSHA256 != "" && found.ModelPath != "" {
		options.Files = map[string]string{filepath.Join(found.ModelPath, found.Weights()): found.ModelSHA256}
	}
	return options
}
