package registry

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/plugins/conformance"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Trial is a plugin that is tried by itself, as its author would, with the environment that it is given here.
type Trial struct {
	config.Embedder

	source embedders.Source
}

// Trial finds a plugin by its file or its name.
func (c Registry) Trial(plugin string) (Trial, error) {
	if info, err := os.Stat(plugin); err == nil && info.Mode().IsRegular() && !strings.ContainsRune(plugin,
		os.PathSeparator) {
		plugin = "." + string(os.PathSeparator) + plugin
	}
	found, err := c.source.Config.Embedder(c.source.Find, plugin, "")
	return Trial{found, c.source}, err
}

// Keeps finds out whether the plugin keeps the contract, by the checks that o names.
func (t Trial) Keeps(ctx context.Context, o conformance.Options) (*conformance.Report, error) {
	o.Path, o.Env = t.PluginPath, t.Env
	if t.ModelPath == "" {
		o.Model = t.Model
	}
	if t.CallTimeout > 0 {
		o.CallTimeout = host.CallTimeout(t.CallTimeout)
	}
	report, err := conformance.Run(ctx, o)
	if err != nil {
		return nil, problem.New(problem.Usage, err)
	}
	return report, nil
}

// Bench is how fast a plugin is.
type Bench struct {
	Plugin  string              `json:"plugin"`
	Version string              `json:"version"`
	Model   string              `json:"model"`
	Dims    int                 `json:"dims"`
	Speeds  []conformance.Speed `json:"speeds"`
}

// Bench measures the plugin through its host, each number of texts a call for a time.
func (t Trial) Bench(ctx context.Context, each time.Duration) (b Bench, err error) {
	h, err := t.source.Once(t.Embedder)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	about, err := h.Describe(ctx)
	if err != nil {
		return b, err
	}
	speeds, err := conformance.Bench(ctx, h, about, each)
	return Bench{about.Plugin, about.Version, about.Model, about.Dims, speeds}, err
}
