// Package query is what this program serves to those who query: its models, and the pipelines of the database.
package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Options say what a Backend serves.
type Options struct {
	Config   *config.Config
	Log      *slog.Logger
	Plugins  *embedders.Pool
	Embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	Database bool // there is one, or will be
}

// Backend is what this program serves to those who query: its models and, with a database, its pipelines. In a sidecar
// it shares the embedders that work there, so that queries go ahead of them.
type Backend struct {
	o Options

	mu      sync.Mutex
	sidecar *sidecar.Sidecar // nil in serve, and while run starts
	pool    *pgxpool.Pool    // for searches; nil without a database, and until it is connected

	making   sync.Mutex
	services map[pipeline.ModelName]*embed.Service // those that no sidecar has

	loading  sync.Mutex          // not held while the database is asked
	loaded   []pipeline.Pipeline // without a sidecar
	loadedAt time.Time
	fetching *fetch // the one under way, or nil
}

// fetch is one question to the database for its pipelines. Those that ask while it is under way wait for its answer.
type fetch struct {
	began     time.Time
	done      chan struct{} // closed when what follows is there
	pipelines []pipeline.Pipeline
	err       error
}

// New makes a Backend. It searches nothing before Follow.
func New(o Options) *Backend {
	return &Backend{o: o, services: map[pipeline.ModelName]*embed.Service{}}
}

// Listen answers queries from now on. The function it returns ends that, after the requests under way; it may be
// called again.
func (b *Backend) Listen(ctx context.Context, address string, observe func(handler, method string, status int,
	took time.Duration),
) (finish func() error, err error) {
	q := b.o.Config.Queries
	o := serve.Options{
		Listen: address, Cert: q.Cert, Key: q.Key, Backend: b, Observe: observe, Log: b.o.Log,
		Limits: serve.Limits{Search: q.SearchTimeout, Stop: b.o.Config.Workers.DrainTimeout},
	}
	switch {
	case q.TokensFile != "":
		if o.Tokens, err = serve.ReadTokens(q.TokensFile, b.o.Log); err != nil {
			return nil, problem.New(problem.Usage, err)
		}
	case !q.NoAuth:
		return nil, problem.New(problem.Usage, fmt.Errorf("nobody may query on %s: neither tokens nor --no-auth are given", address),
			"make a token for each who may: embedsidecar token create NAME --tokens-file FILE, and give the file here",
			"or let everybody on this machine: --no-auth, with a loopback address")
	}
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, problem.New(problem.Usage, err, problem.Hints(err)...)
	}
	if o.Tokens != nil && q.Cert == "" && !loopback.Addr(server.Addr()) {
		b.o.Log.WarnContext(ctx, "tokens and texts travel unencrypted: give --http-cert and --http-key, or have something in front that does",
			"address", server.Addr().String())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is under way gets its answer first
	done := make(chan error, 1)
	go func() { done <- server.Run(serving) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	}), nil
}

// Follow searches through a pool from now on, the pipelines of a sidecar that is about to run or, without one, those
// that the database has.
func (b *Backend) Follow(s *sidecar.Sidecar, pool *pgxpool.Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sidecar, b.pool = s, pool
}

// DB implements serve.Backend.
func (b *Backend) DB() search.DB {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool
}

// Rules implements serve.Backend.
func (b *Backend) Rules(name string) serve.Rules {
	s := b.o.Config.SearchOf(name)
	return serve.Rules{Filterable: s.Filterable, PastRowSecurity: s.PastRowSecurity}
}

// Pipelines implements serve.Backend.
func (b *Backend) Pipelines(ctx context.Context) ([]pipeline.Pipeline, error) {
	return b.pipelines(ctx, fetchLimit)
}

// pipelines returns the pipelines, unless the database has been asked for them for longer than a time without an
// answer.
func (b *Backend) pipelines(ctx context.Context, limit time.Duration) ([]pipeline.Pipeline, error) {
	b.mu.Lock()
	s, pool := b.sidecar, b.pool
	b.mu.Unlock()
	switch {
	case s != nil:
		states := s.States()
		list := make([]pipeline.Pipeline, len(states))
		for i := range states {
			list[i] = states[i].Pipeline
		}
		return list, nil
	case pool == nil && b.o.Database:
		return nil, &serve.UnavailableError{Problem: "the database is not connected yet"}
	case pool == nil:
		return nil, nil
	}
	list, err := b.load(ctx, pool, limit)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); missing {
		err = &serve.UnavailableError{Problem: "nothing is set up in the database, or not any more: embedsidecar init and run set pipelines up"}
	}
	return list, err
}

// fetchLimit is how long the database may take to tell its pipelines, and embedLimit how much of that those wait who
// can do without.
const (
	fetchLimit = 10 * time.Second
	embedLimit = 1500 * time.Millisecond
)

// load asks the database for the pipelines, if what it said is old, and waits for its answer until it has taken longer
// than a limit.
func (b *Backend) load(ctx context.Context, pool *pgxpool.Pool, limit time.Duration) ([]pipeline.Pipeline, error) {
	const fresh = 5 * time.Second
	b.loading.Lock()
	if b.fetching == nil && time.Since(b.loadedAt) < fresh {
		defer b.loading.Unlock()
		return b.loaded, nil
	}
	if b.fetching == nil {
		b.fetching = &fetch{began: time.Now(), done: make(chan struct{})}
		go b.fetch(context.WithoutCancel(ctx), pool, b.fetching) // others wait for it, too
	}
	f := b.fetching
	b.loading.Unlock()
	late := time.NewTimer(time.Until(f.began.Add(limit)))
	defer late.Stop()
	select {
	case <-f.done:
		return f.pipelines, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-late.C:
		return nil, errNoAnswer()
	}
}

func errNoAnswer() error {
	return &serve.UnavailableError{Problem: "the database does not answer: come again"}
}

// fetch asks the database.
func (b *Backend) fetch(ctx context.Context, pool *pgxpool.Pool, f *fetch) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	f.pipelines, f.err = lookup.All(ctx, pool)
	if f.err != nil && ctx.Err() != nil {
		f.err = errNoAnswer()
	}
	b.loading.Lock()
	defer b.loading.Unlock()
	if b.fetching = nil; f.err == nil {
		b.loaded, b.loadedAt = f.pipelines, time.Now()
	}
	close(f.done)
}

// Ready implements serve.Backend.
func (b *Backend) Ready(ctx context.Context, p *pipeline.Pipeline) (serve.Model, error) {
	if p.Status != pipeline.Active {
		return nil, &serve.UnavailableError{Problem: fmt.Sprintf("pipeline %q cannot be searched now: %s", p.Name, p.Status)}
	}
	model, err := b.Service(ctx, p.ModelName())
	if err != nil {
		return nil, err
	}
	about, err := model.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if !p.MadeBy(about) {
		return nil, &serve.UnavailableError{Problem: fmt.Sprintf(
			"pipeline %q cannot be searched: its vectors were made by another model than the one that runs here", p.Name)}
	}
	return model, nil
}

// Models implements serve.Backend.
func (b *Backend) Models(ctx context.Context, only []string) ([]string, error) {
	models, err := b.models(ctx, only)
	if len(models) == 0 { // none, as far as is known
		return nil, err
	}
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.name
	}
	return names, nil
}

// Model implements serve.Backend.
func (b *Backend) Model(ctx context.Context, only []string, name string) (serve.Model, error) {
	models, err := b.models(ctx, only)
	for _, m := range models {
		if m.name == name || slices.Contains(m.others, name) {
			return b.Service(ctx, m.ModelName)
		}
	}
	if err != nil { // it may be that of a pipeline
		return nil, err
	}
	return nil, serve.ErrUnknown
}

// Known implements serve.Backend.
func (b *Backend) Known(ctx context.Context, only []string, name string) (*embed.Description, error) {
	models, err := b.models(ctx, only)
	for _, m := range models {
		if m.name != name && !slices.Contains(m.others, name) {
			continue
		}
		for _, key := range m.keys {
			if about := b.o.Plugins.Described(key); about != nil {
				return about, nil
			}
		}
		return nil, nil
	}
	if err != nil { // it may be that of a pipeline
		return nil, err
	}
	return nil, serve.ErrUnknown
}

// namedModel is a model with the names it goes by.
type namedModel struct {
	pipeline.ModelName
	name   string
	others []string
	keys   []pipeline.ModelName // all that it is called by, the first is ModelName
}

// models lists what may be asked for: the default, what the pipelines use, and what the configuration names; or what
// the named pipelines use. With an error it lists what is known without the database, or from before: to embed texts
// takes none.
func (b *Backend) models(ctx context.Context, only []string) ([]namedModel, error) {
	pipelines, failed := b.pipelines(ctx, embedLimit)
	if failed != nil {
		b.loading.Lock()
		pipelines = b.loaded
		b.loading.Unlock()
	}
	var models []namedModel
	for _, key := range b.modelKeys(pipelines, only) {
		m := b.naming(key)
		if at := slices.IndexFunc(models, func(n namedModel) bool { return n.name == m.name }); at >= 0 {
			models[at].keys = append(models[at].keys, key)
		} else {
			models = append(models, m)
		}
	}
	return models, failed
}

// modelKeys returns how the configuration and pipelines call their models: all of them, or those of the named
// pipelines.
func (b *Backend) modelKeys(pipelines []pipeline.Pipeline, only []string) (keys []pipeline.ModelName) {
	all := len(only) == 0
	if all && len(pipelines)+len(b.o.Config.Pipelines) == 0 {
		keys = append(keys, pipeline.ModelName{})
	}
	known := slices.Clone(pipelines)
	for i := range b.o.Config.Pipelines {
		if lookup.Find(known, b.o.Config.Pipelines[i].Name) < 0 {
			known = append(known, pipeline.Pipeline{Spec: b.o.Config.Pipelines[i]})
		}
	}
	his := lookup.Of(known, only)
	add := func(s *pipeline.Spec) {
		if lookup.Find(his, s.Name) >= 0 {
			keys = append(keys, s.ModelName())
		}
	}
	for i := range b.o.Config.Pipelines {
		add(&b.o.Config.Pipelines[i])
	}
	for i := range pipelines {
		add(&pipelines[i].Spec)
	}
	for _, m := range b.o.Config.Models {
		if all {
			keys = append(keys, pipeline.ModelName{Model: m.Name})
		}
	}
	return keys
}

// naming finds the names of a model without starting it: as it describes itself if it runs, and as it is configured.
func (b *Backend) naming(key pipeline.ModelName) namedModel {
	m := namedModel{ModelName: key, keys: []pipeline.ModelName{key}}
	configured := key.Model
	if configured == "" {
		configured = b.o.Config.DefaultModel
	}
	plugin := key.Plugin
	if plugin == "" {
		plugin = b.o.Config.Plugins.Default
	}
	if configured == "" {
		configured = manifest.For(plugin).Model.Default
	}
	if configured == "" {
		configured = strings.TrimPrefix(filepath.Base(plugin), "embedsidecar-") // the one model of a plugin goes by its name
	}
	m.name = configured
	if strings.ContainsRune(configured, filepath.Separator) {
		m.name = filepath.Base(configured) // where it lies is nobody's business
	}
	if about := b.o.Plugins.Described(key); about != nil && about.Model != "" && about.Model != m.name {
		m.others = append(m.others, about.Model)
	}
	return m
}

// Service returns what embeds with a model: the sidecar's own where there is one, so that it knows who waits.
func (b *Backend) Service(ctx context.Context, key pipeline.ModelName) (*embed.Service, error) {
	b.mu.Lock()
	working := b.sidecar
	b.mu.Unlock()
	if working != nil {
		if s := working.Service(key); s != nil {
			return s, nil
		}
	}
	b.making.Lock()
	defer b.making.Unlock()
	if s, ok := b.services[key]; ok {
		return s, nil
	}
	e, err := b.o.Embedder(ctx, &pipeline.Pipeline{Spec: pipeline.Spec{Plugin: key.Plugin, Model: key.Model}})
	if err != nil {
		return nil, err
	}
	b.services[key] = embed.NewService(e, b.o.Config.Workers.CacheBytes)
	return b.services[key], nil
}
