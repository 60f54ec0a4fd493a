package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/loopback"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/serve"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// answers is what this program serves to those who query: its models and, with a database, its pipelines. In a sidecar
// it shares the embedders that work there, so that queries go ahead of them.
type answers struct {
	env      *environment
	plugins  *embedders.Pool
	embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	database bool // there is one, or will be

	mu      sync.Mutex
	sidecar *sidecar.Sidecar // nil in serve, and while run starts
	pool    *pgxpool.Pool    // for searches; nil without a database, and until it is connected

	making   sync.Mutex
	services map[embedders.ModelOf]*embed.Service // those that no sidecar has

	loading  sync.Mutex          // not held while the database is asked
	loaded   []pipeline.Pipeline // without a sidecar
	loadedAt time.Time
	look     *look // the one under way, or nil
}

// look is one question to the database for its pipelines. Those that ask while it is under way wait for its answer.
type look struct {
	began     time.Time
	done      chan struct{} // closed when what follows is there
	pipelines []pipeline.Pipeline
	err       error
}

func newAnswers(env *environment, plugins *embedders.Pool, embedder func(ctx context.Context,
	p *pipeline.Pipeline) (embed.Embedder, error),
) *answers {
	return &answers{env: env, plugins: plugins, embedder: embedder, services: map[embedders.ModelOf]*embed.Service{}}
}

// listen answers queries from now on. The function it returns ends that, after the requests under way; it may be
// called again.
func (a *answers) listen(ctx context.Context, address string, observe func(handler, method string, status int,
	took time.Duration),
) (finish func() error, err error) {
	q := a.env.config.Queries
	o := serve.Options{
		Listen: address, Cert: q.Cert, Key: q.Key, Backend: a, Observe: observe, Log: a.env.log,
		Limits: serve.Limits{Search: q.SearchTimeout, Stop: a.env.config.Workers.DrainTimeout},
	}
	switch {
	case q.TokensFile != "":
		if o.Tokens, err = serve.ReadTokens(q.TokensFile, a.env.log); err != nil {
			return nil, fail(exitUsage, err)
		}
	case !q.NoAuth:
		return nil, fail(exitUsage, fmt.Errorf("nobody may query on %s: neither tokens nor --no-auth are given", address),
			"make a token for each who may: embedsidecar token create NAME --tokens-file FILE, and give the file here",
			"or let everybody on this machine: --no-auth, with a loopback address")
	}
	server, err := serve.Listen(ctx, o)
	if err != nil {
		return nil, fail(exitUsage, err, problem.Hints(err)...)
	}
	if o.Tokens != nil && q.Cert == "" && !loopback.Addr(server.Addr()) {
		a.env.log.WarnContext(ctx, "tokens and texts travel unencrypted: give --http-cert and --http-key, or have something in front that does", "address", server.Addr().String())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what is under way gets its answer first
	done := make(chan error, 1)
	go func() { done <- server.Run(serving) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	}), nil
}

// follow searches through a pool from now on, the pipelines of a sidecar that is about to run or, without one, those
// that the database has.
func (a *answers) follow(s *sidecar.Sidecar, pool *pgxpool.Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sidecar, a.pool = s, pool
}

// DB implements serve.Backend.
func (a *answers) DB() search.DB {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pool
}

// Rules implements serve.Backend.
func (a *answers) Rules(name string) serve.Rules {
	s := a.env.config.SearchOf(name)
	return serve.Rules{Filterable: s.Filterable, PastRowSecurity: s.PastRowSecurity}
}

// Pipelines implements serve.Backend.
func (a *answers) Pipelines(ctx context.Context) ([]pipeline.Pipeline, error) {
	return a.pipelines(ctx, lookLimit)
}

// pipelines returns the pipelines, unless the database has been asked for them for longer than a time without an
// answer.
func (a *answers) pipelines(ctx context.Context, limit time.Duration) ([]pipeline.Pipeline, error) {
	a.mu.Lock()
	s, pool := a.sidecar, a.pool
	a.mu.Unlock()
	switch {
	case s != nil:
		states := s.States()
		list := make([]pipeline.Pipeline, len(states))
		for i := range states {
			list[i] = states[i].Pipeline
		}
		return list, nil
	case pool == nil && a.database:
		return nil, &serve.UnavailableError{Problem: "the database is not connected yet"}
	case pool == nil:
		return nil, nil
	}
	list, err := a.load(ctx, pool, limit)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); missing {
		err = &serve.UnavailableError{Problem: "nothing is set up in the database, or not any more: embedsidecar init and run set pipelines up"}
	}
	return list, err
}

// lookLimit is how long the database may take to tell its pipelines, and embedLimit how much of that those wait who
// can do without.
const (
	lookLimit  = 10 * time.Second
	embedLimit = 1500 * time.Millisecond
)

// load asks the database for the pipelines, if what it said is old, and waits for its answer until it has taken longer
// than a limit.
func (a *answers) load(ctx context.Context, pool *pgxpool.Pool, limit time.Duration) ([]pipeline.Pipeline, error) {
	const fresh = 5 * time.Second
	a.loading.Lock()
	if a.look == nil && time.Since(a.loadedAt) < fresh {
		defer a.loading.Unlock()
		return a.loaded, nil
	}
	if a.look == nil {
		a.look = &look{began: time.Now(), done: make(chan struct{})}
		go a.ask(context.WithoutCancel(ctx), pool, a.look) // others wait for it, too
	}
	l := a.look
	a.loading.Unlock()
	late := time.NewTimer(time.Until(l.began.Add(limit)))
	defer late.Stop()
	select {
	case <-l.done:
		return l.pipelines, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-late.C:
		return nil, errNoAnswer()
	}
}

func errNoAnswer() error {
	return &serve.UnavailableError{Problem: "the database does not answer: come again"}
}

// ask does what a look is for.
func (a *answers) ask(ctx context.Context, pool *pgxpool.Pool, l *look) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	l.pipelines, l.err = lookup.All(ctx, pool)
	if l.err != nil && ctx.Err() != nil {
		l.err = errNoAnswer()
	}
	a.loading.Lock()
	defer a.loading.Unlock()
	if a.look = nil; l.err == nil {
		a.loaded, a.loadedAt = l.pipelines, time.Now()
	}
	close(l.done)
}

// Pipeline implements serve.Backend.
func (a *answers) Pipeline(ctx context.Context, name string) (*pipeline.Pipeline, serve.Model, error) {
	all, err := a.Pipelines(ctx)
	if err != nil {
		return nil, nil, err
	}
	at := lookup.Meant(all, name)
	if at < 0 {
		return nil, nil, serve.ErrUnknown
	}
	p := &all[at]
	if p.Status != pipeline.Active {
		return nil, nil, &serve.UnavailableError{Problem: fmt.Sprintf("pipeline %q cannot be searched now: %s", p.Name,
			p.Status)}
	}
	model, err := a.service(ctx, embedders.ModelOf{Plugin: p.Plugin, Model: p.Model})
	if err != nil {
		return nil, nil, err
	}
	about, err := model.Describe(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !p.MadeBy(about) {
		return nil, nil, &serve.UnavailableError{Problem: fmt.Sprintf(
			"pipeline %q cannot be searched: its vectors were made by another model than the one that runs here", p.Name)}
	}
	return p, model, nil
}

// Models implements serve.Backend.
func (a *answers) Models(ctx context.Context, only []string) ([]string, error) {
	models, err := a.models(ctx, only)
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
func (a *answers) Model(ctx context.Context, only []string, name string) (serve.Model, error) {
	models, err := a.models(ctx, only)
	for _, m := range models {
		if m.name == name || slices.Contains(m.others, name) {
			return a.service(ctx, m.ModelOf)
		}
	}
	if err != nil { // it may be that of a pipeline
		return nil, err
	}
	return nil, serve.ErrUnknown
}

// Known implements serve.Backend.
func (a *answers) Known(ctx context.Context, only []string, name string) (*embed.Description, error) {
	models, err := a.models(ctx, only)
	for _, m := range models {
		if m.name != name && !slices.Contains(m.others, name) {
			continue
		}
		for _, key := range m.keys {
			if about := a.plugins.Described(key); about != nil {
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
	embedders.ModelOf
	name   string
	others []string
	keys   []embedders.ModelOf // all that it is called by, ModelOf first
}

// models lists what may be asked for: the default, what the pipelines use, and what the configuration names; or what
// the named pipelines use. With an error it lists what is known without the database, or from before: to embed texts
// takes none.
func (a *answers) models(ctx context.Context, only []string) ([]namedModel, error) {
	pipelines, failed := a.pipelines(ctx, embedLimit)
	if failed != nil {
		a.loading.Lock()
		pipelines = a.loaded
		a.loading.Unlock()
	}
	var models []namedModel
	for _, key := range a.modelKeys(pipelines, only) {
		m := a.naming(key)
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
func (a *answers) modelKeys(pipelines []pipeline.Pipeline, only []string) (keys []embedders.ModelOf) {
	all := len(only) == 0
	if all && len(pipelines)+len(a.env.config.Pipelines) == 0 {
		keys = append(keys, embedders.ModelOf{})
	}
	add := func(s *pipeline.Spec) {
		if all || slices.Contains(only, s.Name) {
			keys = append(keys, embedders.ModelOf{Plugin: s.Plugin, Model: s.Model})
		}
	}
	for i := range a.env.config.Pipelines {
		add(&a.env.config.Pipelines[i])
	}
	for i := range pipelines {
		add(&pipelines[i].Spec)
	}
	for _, m := range a.env.config.Models {
		if all {
			keys = append(keys, embedders.ModelOf{Model: m.Name})
		}
	}
	return keys
}

// naming finds the names of a model without starting it: as it describes itself if it runs, and as it is configured.
func (a *answers) naming(key embedders.ModelOf) namedModel {
	m := namedModel{ModelOf: key, keys: []embedders.ModelOf{key}}
	configured := key.Model
	if configured == "" {
		configured = a.env.config.DefaultModel
	}
	plugin := key.Plugin
	if plugin == "" {
		plugin = a.env.config.Plugins.Default
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
	if about := a.plugins.Described(key); about != nil && about.Model != "" && about.Model != m.name {
		m.others = append(m.others, about.Model)
	}
	return m
}

// service returns what embeds with a model: the sidecar's own where there is one, so that it knows who waits.
func (a *answers) service(ctx context.Context, key embedders.ModelOf) (*embed.Service, error) {
	a.mu.Lock()
	working := a.sidecar
	a.mu.Unlock()
	if working != nil {
		if s := working.Service(key.Plugin, key.Model); s != nil {
			return s, nil
		}
	}
	a.making.Lock()
	defer a.making.Unlock()
	if s, ok := a.services[key]; ok {
		return s, nil
	}
	e, err := a.embedder(ctx, &pipeline.Pipeline{Spec: pipeline.Spec{Plugin: key.Plugin, Model: key.Model}})
	if err != nil {
		return nil, err
	}
	a.services[key] = embed.NewService(e, a.env.config.Workers.CacheBytes)
	return a.services[key], nil
}
