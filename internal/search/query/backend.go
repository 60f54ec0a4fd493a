// Package query serves searches and embeddings: the models of this program, and the pipelines of the database.
package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Options configure a Backend.
type Options struct {
	Config   *config.Config
	Plugins  *embedders.Pool
	Embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	// Service returns the embedding service that the sidecars of the process share for an embedder; nil: no sidecars.
	Service  func(e embed.Embedder) *embed.Service
	Database bool // there is a database, or will be
}

// Backend serves the models of this program and, with a database, its pipelines. In a sidecar it shares the embedders
// of the workers, so that queries take precedence.
type Backend struct {
	o   Options
	cfg atomic.Pointer[config.Config] // the configuration in force

	mu      sync.Mutex
	sidecar *sidecar.Sidecar    // nil in serve, and while run starts
	pool    *pgxpool.Pool       // for searches; nil without a database, and until it is connected
	before  []pipeline.Pipeline // of the previous sidecar, used until this one has loaded its own; nil: there was none

	making   sync.Mutex
	services map[pipeline.ModelName]*embed.Service // services that no sidecar has

	fetching singleflight.Group // loads the database's pipelines; concurrent callers share the result
	loading  sync.Mutex         // not held during the query
	loaded   []pipeline.Pipeline
	loadedAt time.Time
	asked    time.Time // when the query in flight began; zero: none is in flight
}

// Model embeds texts for callers that wait for the answer. It is safe for concurrent use.
type Model interface {
	Describe(ctx context.Context) (embed.Description, error)
	// Ask is like embed.Service.Ask.
	Ask(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error)
}

// noReranker returns the error for a pipeline without a reranker.
func noReranker(name string) error {
	return &search.BadRequestError{
		Problem: fmt.Sprintf("no reranker is configured for pipeline %q", name),
		Hint: []string{
			"name one of the models of the configuration: search: {rerank: MODEL}, for all pipelines or for one of them",
			"or search without rerank",
		},
	}
}

// ErrUnknown means that nothing has that name.
var ErrUnknown = errors.New("nothing has that name")

// New makes a Backend. It can search only after Follow.
func New(o Options) *Backend {
	b := &Backend{o: o, services: map[pipeline.ModelName]*embed.Service{}}
	b.cfg.Store(o.Config)
	return b
}

func (b *Backend) config() *config.Config { return b.cfg.Load() }

// Use replaces the configuration.
func (b *Backend) Use(c *config.Config) {
	b.cfg.Store(c)
	b.making.Lock()
	defer b.making.Unlock()
	clear(b.services) // names may now refer to other models
}

// Follow sets the pool to search through. The pipelines are those of the sidecar that is about to run or, without one,
// those stored in the database.
func (b *Backend) Follow(s *sidecar.Sidecar, pool *pgxpool.Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sidecar != nil {
		if list, known := b.sidecar.Pipelines(); known {
			b.before = list
		}
	}
	b.sidecar, b.pool = s, pool
}

// DB returns the database that pipelines are searched in.
func (b *Backend) DB() search.DB {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool
}

// Rules returns the search settings of a pipeline, by its full name.
func (b *Backend) Rules(name string) config.Search { return b.config().SearchOf(name) }

// Pipelines lists the pipelines that serve searches; nil without a database.
func (b *Backend) Pipelines(ctx context.Context) ([]pipeline.Pipeline, error) {
	list, err := b.pipelines(ctx, fetchLimit)
	return serving(list), err
}

// PipelinesNow is like Pipelines, but reads the database at most a moment ago and ignores what a sidecar has loaded.
func (b *Backend) PipelinesNow(ctx context.Context) ([]pipeline.Pipeline, error) {
	b.mu.Lock()
	pool := b.pool
	b.mu.Unlock()
	if pool == nil {
		return b.Pipelines(ctx)
	}
	list, err := b.load(ctx, pool, fetchLimit, moment)
	return serving(list), err
}

// serving leaves out generations that do not serve searches.
func serving(all []pipeline.Pipeline) []pipeline.Pipeline {
	return slices.DeleteFunc(slices.Clone(all), func(p pipeline.Pipeline) bool { return p.BesideID != 0 })
}

// pipelines returns the pipelines. It fails if the database has not answered the query for them for longer than limit.
func (b *Backend) pipelines(ctx context.Context, limit time.Duration) ([]pipeline.Pipeline, error) {
	b.mu.Lock()
	s, pool, before := b.sidecar, b.pool, b.before
	b.mu.Unlock()
	switch {
	case s != nil:
		if list, known := s.Pipelines(); known {
			return list, nil
		}
		if before != nil {
			return before, nil
		}
		return nil, &search.UnavailableError{Problem: "the sidecar is starting and has not loaded its pipelines yet: retry later"}
	case pool == nil && b.o.Database:
		return nil, &search.UnavailableError{Problem: "the database is not connected yet"}
	case pool == nil:
		return nil, nil
	}
	list, err := b.load(ctx, pool, limit, fresh)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); missing {
		err = &search.UnavailableError{Problem: "the database has no pipelines: embedsidecar init or run sets them up"}
	}
	return list, err
}

// fetchLimit is the time limit of the query for the pipelines. embedLimit is how long callers wait for it that can do
// without its result.
const (
	fetchLimit = 10 * time.Second
	embedLimit = 1500 * time.Millisecond
)

// How long loaded pipelines are considered current: in general, and for a caller that knows of a change.
const (
	fresh  = 5 * time.Second
	moment = 100 * time.Millisecond
)

// load returns the pipelines from the database, cached for the duration fresh. It waits for the query until that has
// taken longer than limit.
func (b *Backend) load(ctx context.Context, pool *pgxpool.Pool, limit, fresh time.Duration) ([]pipeline.Pipeline,
	error,
) {
	b.loading.Lock()
	known, at, asked := b.loaded, b.loadedAt, b.asked
	b.loading.Unlock()
	if time.Since(at) < fresh {
		return known, nil
	}
	answer := b.fetching.DoChan("", func() (any, error) {
		return b.fetch(context.WithoutCancel(ctx), pool) // the result is shared with other callers
	})
	if asked.IsZero() {
		asked = time.Now()
	}
	select {
	case got := <-answer:
		list, _ := got.Val.([]pipeline.Pipeline)
		return list, got.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Until(asked.Add(limit))):
		return nil, errNoAnswer()
	}
}

func errNoAnswer() error {
	return &search.UnavailableError{Problem: "the database does not answer: retry later"}
}

func (b *Backend) fetch(ctx context.Context, pool *pgxpool.Pool) ([]pipeline.Pipeline, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	b.loading.Lock()
	b.asked = time.Now()
	b.loading.Unlock()
	list, err := lookup.All(ctx, pool)
	b.loading.Lock()
	defer b.loading.Unlock()
	b.asked = time.Time{}
	if err == nil {
		b.loaded, b.loadedAt = list, time.Now()
	} else if ctx.Err() != nil {
		err = errNoAnswer()
	}
	return list, err
}

// Ready returns the model that made the vectors of a pipeline, or a *search.UnavailableError if the pipeline cannot be
// searched now.
func (b *Backend) Ready(ctx context.Context, p *pipeline.Pipeline) (Model, error) {
	if p.Status != pipeline.Active {
		return nil, &search.UnavailableError{Problem: fmt.Sprintf("pipeline %q cannot be searched now: %s", p.Name, p.Status)}
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
		return nil, &search.UnavailableError{Problem: fmt.Sprintf(
			"pipeline %q cannot be searched: its vectors were made by a model other than the running one", p.Name)}
	}
	return asked{model, b.Book(), p}, nil
}

// Book returns the counter of the cost of queries; nil: no sidecar runs here, and nothing is counted.
func (b *Backend) Book() *spend.Book {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sidecar == nil {
		return nil
	}
	return b.sidecar.Book()
}

// asked is a model whose answers are counted for a pipeline, or for the model itself without a pipeline.
type asked struct {
	Model

	book *spend.Book
	p    *pipeline.Pipeline
}

func (a asked) Ask(ctx context.Context, kind embed.Kind, texts []string) (results []embed.Result, err error) {
	call := func() (int, error) {
		results, err = a.Model.Ask(ctx, kind, texts)
		return embed.Sent(results, texts), err
	}
	if a.p.ID == 0 {
		err = a.book.Vectors(ctx, a.p.Model, texts, call)
	} else {
		err = a.book.Spend(ctx, a.p, texts, call)
	}
	return results, err
}

// Models lists the names of models that a caller may use, the default first. If pipelines are given, it lists only
// their models. It starts no plugin.
func (b *Backend) Models(ctx context.Context, only []string) ([]string, error) {
	models, err := b.models(ctx, only)
	if len(models) == 0 { // none are known
		return nil, err
	}
	return lists.Map(models, func(m namedModel) string { return m.name }), nil
}

// Model returns a model by one of these names, or ErrUnknown.
func (b *Backend) Model(ctx context.Context, only []string, name string) (Model, error) {
	m, err := b.named(ctx, only, name)
	if err != nil {
		return nil, err
	}
	service, err := b.Service(ctx, m.ModelName)
	if err != nil {
		return nil, err
	}
	return asked{service, b.Book(), &pipeline.Pipeline{Spec: pipeline.Spec{Model: m.Model}}}, nil
}

// Known returns the description of a model by one of these names, nil if the model has not been asked yet, or
// ErrUnknown. It starts no plugin.
func (b *Backend) Known(ctx context.Context, only []string, name string) (*embed.Description, error) {
	m, err := b.named(ctx, only, name)
	for _, key := range m.keys {
		if about := b.o.Plugins.Described(key); about != nil {
			return about, nil
		}
	}
	return nil, err
}

// named returns a model by one of its names, or ErrUnknown. If pipelines cannot be read, it may be the model of one.
func (b *Backend) named(ctx context.Context, only []string, name string) (namedModel, error) {
	models, err := b.models(ctx, only)
	for _, m := range models {
		if m.name == name || slices.Contains(m.others, name) {
			return m, nil
		}
	}
	return namedModel{}, cmp.Or(err, ErrUnknown)
}

// namedModel is a model with its names.
type namedModel struct {
	pipeline.ModelName
	name   string
	others []string
	keys   []pipeline.ModelName // all its configured names; the first is ModelName
}

// models lists the usable models: the default, those of the pipelines, and those of the configuration; or those of the
// named pipelines. With an error, it still lists the models known without the database or from an earlier query,
// because embedding needs no database.
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

// modelKeys returns the configured names of the models of the configuration and of pipelines: of all, or of the named
// pipelines.
func (b *Backend) modelKeys(pipelines []pipeline.Pipeline, only []string) (keys []pipeline.ModelName) {
	all := len(only) == 0
	if all && len(pipelines)+len(b.config().Pipelines) == 0 {
		keys = append(keys, pipeline.ModelName{})
	}
	known := slices.Clone(pipelines)
	for i := range b.config().Pipelines {
		if lookup.Find(known, b.config().Pipelines[i].Name) < 0 {
			known = append(known, pipeline.Pipeline{Spec: b.config().Pipelines[i]})
		}
	}
	his := lookup.Of(known, only)
	add := func(s *pipeline.Spec) {
		if lookup.Find(his, s.Name) >= 0 {
			keys = append(keys, s.ModelName())
		}
	}
	for i := range b.config().Pipelines {
		add(&b.config().Pipelines[i])
	}
	for i := range pipelines {
		add(&pipelines[i].Spec)
	}
	for _, m := range b.config().Models {
		if all {
			keys = append(keys, pipeline.ModelName{Model: m.Name})
		}
	}
	return keys
}

// naming finds the names of a model without starting it: its own description if it runs, and its configuration.
func (b *Backend) naming(key pipeline.ModelName) namedModel {
	m := namedModel{ModelName: key, keys: []pipeline.ModelName{key}}
	plugin := cmp.Or(key.Plugin, b.config().Plugins.Default)
	configured := cmp.Or(key.Model, b.config().DefaultModel, manifest.For(plugin).Model.Default,
		strings.TrimPrefix(filepath.Base(plugin), "embedsidecar-")) // the only model of a plugin has the plugin's name
	m.name = configured
	if strings.ContainsRune(configured, filepath.Separator) {
		m.name = filepath.Base(configured) // the path of the model is not public
	}
	if about := b.o.Plugins.Described(key); about != nil && about.Model != "" && about.Model != m.name {
		m.others = append(m.others, about.Model)
	}
	return m
}

// Service returns the embedding service of a model. It is the sidecar's own if there is one, so that queries take
// precedence over its workers.
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
	if b.o.Service != nil {
		b.services[key] = b.o.Service(e)
	} else {
		b.services[key] = embed.NewService(e, b.config().Workers.CacheBytes)
	}
	return b.services[key], nil
}

// Explained is the short state of a row: why a search finds it or not.
type Explained struct {
	Pipeline string       `json:"pipeline"`
	Key      string       `json:"key"`
	Verdict  explain.Code `json:"verdict"`
	Sentence string       `json:"sentence"`
	Hints    []string     `json:"hints"`
}

// Explain returns the state of the row with a key, for clients that are no operators. It does not return its text.
func (b *Backend) Explain(ctx context.Context, p *pipeline.Pipeline, key string) (Explained, error) {
	b.mu.Lock()
	pool := b.pool
	b.mu.Unlock()
	if pool == nil {
		return Explained{}, &search.UnavailableError{Problem: "the database is not connected yet"}
	}
	list, err := explain.Read(ctx, pool, p.Name, []string{key}, explain.Options{
		HideHashes: true, Outside: true,
	})
	if err != nil {
		return Explained{}, err
	}
	s := &list[0]
	return Explained{s.Pipeline, s.Key, s.Verdict.Code, s.Verdict.Sentence, append([]string{}, s.Verdict.Hints...)}, nil
}
