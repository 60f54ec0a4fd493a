// Package query is what this program serves to those who query: its models, and the pipelines of the database.
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
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/plugins/manifest"
)

// Options say what a Backend serves.
type Options struct {
	Config   *config.Config
	Plugins  *embedders.Pool
	Embedder func(ctx context.Context, p *pipeline.Pipeline) (embed.Embedder, error)
	// Service returns the service of an embedder that sidecars of the process have, too. nil: there are none.
	Service  func(e embed.Embedder) *embed.Service
	Database bool // there is one, or will be
}

// Backend is what this program serves to those who query: its models and, with a database, its pipelines. In a sidecar
// it shares the embedders that work there, so that queries go ahead of them.
type Backend struct {
	o   Options
	cfg atomic.Pointer[config.Config] // what is in force

	mu      sync.Mutex
	sidecar *sidecar.Sidecar    // nil in serve, and while run starts
	pool    *pgxpool.Pool       // for searches; nil without a database, and until it is connected
	before  []pipeline.Pipeline // of the sidecar before, which hold until this one knows its own; nil: there was none

	making   sync.Mutex
	services map[pipeline.ModelName]*embed.Service // those that no sidecar has

	fetching singleflight.Group // of the database's pipelines: those that ask meanwhile wait for its answer
	loading  sync.Mutex         // not held while the database is asked
	loaded   []pipeline.Pipeline
	loadedAt time.Time
	asked    time.Time // since when the database is asked; zero: it is not
}

// Model embeds for those who wait for an answer. It is safe for concurrent use.
type Model interface {
	Describe(ctx context.Context) (embed.Description, error)
	// Ask is embed.Service's.
	Ask(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error)
}

// Rules are what a pipeline's configuration says of searches for others.
type Rules struct {
	Filterable      []string // columns a filter may be about, beside those of key, text and filter
	PastRowSecurity bool     // search though policies of the table would not hold
}

// noReranker says how a pipeline gets a reranker.
func noReranker(name string) error {
	return &search.BadRequestError{
		Problem: fmt.Sprintf("no reranker is configured for pipeline %q", name),
		Hint: []string{
			"name one of the models of the configuration: search: {rerank: MODEL}, for all pipelines or for one of them",
			"or search without rerank",
		},
	}
}

// ErrUnknown means that there is nothing of that name.
var ErrUnknown = errors.New("there is nothing of that name")

// New makes a Backend. It searches nothing before Follow.
func New(o Options) *Backend {
	b := &Backend{o: o, services: map[pipeline.ModelName]*embed.Service{}}
	b.cfg.Store(o.Config)
	return b
}

func (b *Backend) config() *config.Config { return b.cfg.Load() }

// Use serves by another configuration from now on.
func (b *Backend) Use(c *config.Config) {
	b.cfg.Store(c)
	b.making.Lock()
	defer b.making.Unlock()
	clear(b.services) // names may mean other models
}

// Follow searches through a pool from now on, the pipelines of a sidecar that is about to run or, without one, those
// that the database has.
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

// DB is where pipelines are searched.
func (b *Backend) DB() search.DB {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pool
}

// Rules returns what the configuration says of searching a pipeline, by its whole name.
func (b *Backend) Rules(name string) Rules {
	s := b.config().SearchOf(name)
	return Rules{Filterable: s.Filterable, PastRowSecurity: s.PastRowSecurity}
}

// Pipelines lists the pipelines that serve; nil without a database.
func (b *Backend) Pipelines(ctx context.Context) ([]pipeline.Pipeline, error) {
	list, err := b.pipelines(ctx, fetchLimit)
	return serving(list), err
}

// PipelinesNow is Pipelines as the database has them, or had them a moment ago, whatever a sidecar knows of them.
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

// serving leaves out generations that nobody searches.
func serving(all []pipeline.Pipeline) []pipeline.Pipeline {
	return slices.DeleteFunc(slices.Clone(all), func(p pipeline.Pipeline) bool { return p.Beside != 0 })
}

// pipelines returns the pipelines, unless the database has been asked for them for longer than a time without an
// answer.
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
		return nil, &search.UnavailableError{Problem: "the sidecar starts, and does not know its pipelines yet: retry later"}
	case pool == nil && b.o.Database:
		return nil, &search.UnavailableError{Problem: "the database is not connected yet"}
	case pool == nil:
		return nil, nil
	}
	list, err := b.load(ctx, pool, limit, fresh)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); missing {
		err = &search.UnavailableError{Problem: "nothing is set up in the database, or not any more: embedsidecar init and run set pipelines up"}
	}
	return list, err
}

// fetchLimit is how long the database may take to tell its pipelines, and embedLimit how much of that those wait who
// can do without.
const (
	fetchLimit = 10 * time.Second
	embedLimit = 1500 * time.Millisecond
)

// What the database said is believed for so long: in general, and by anyone who knows that something has changed.
const (
	fresh  = 5 * time.Second
	moment = 100 * time.Millisecond
)

// load asks the database for the pipelines, if what it said is old, and waits for its answer until it has taken longer
// than a limit.
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
		return b.fetch(context.WithoutCancel(ctx), pool) // others wait for it, too
	})
	if asked.IsZero() {
		asked = time.Now()
	}
	late := time.NewTimer(time.Until(asked.Add(limit)))
	defer late.Stop()
	select {
	case got := <-answer:
		list, _ := got.Val.([]pipeline.Pipeline)
		return list, got.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-late.C:
		return nil, errNoAnswer()
	}
}

func errNoAnswer() error {
	return &search.UnavailableError{Problem: "the database does not answer: retry later"}
}

// fetch asks the database.
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

// Ready returns the model that the vectors of a pipeline were made with, or a *search.UnavailableError when it cannot
// be searched now.
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
			"pipeline %q cannot be searched: its vectors were made by another model than the one that runs here", p.Name)}
	}
	return asked{model, b.Book(), p}, nil
}

// Book is where what questions cost is counted; nil: no sidecar works here, and nobody counts.
func (b *Backend) Book() *spend.Book {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sidecar == nil {
		return nil
	}
	return b.sidecar.Book()
}

// asked is a model whose answers are counted for a pipeline, or for itself where there is none.
type asked struct {
	Model

	book *spend.Book
	p    *pipeline.Pipeline
}

// Ask implements Model.
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

// Models lists the names of models that may be asked for, the default first: where pipelines are named, only what their
// vectors are made with. Nothing is started for it.
func (b *Backend) Models(ctx context.Context, only []string) ([]string, error) {
	models, err := b.models(ctx, only)
	if len(models) == 0 { // none, as far as is known
		return nil, err
	}
	return lists.Map(models, func(m namedModel) string { return m.name }), nil
}

// Model returns a model by one of these names, or ErrUnknown.
func (b *Backend) Model(ctx context.Context, only []string, name string) (Model, error) {
	models, err := b.models(ctx, only)
	for _, m := range models {
		if m.name == name || slices.Contains(m.others, name) {
			service, err := b.Service(ctx, m.ModelName)
			if err != nil {
				return nil, err
			}
			return asked{service, b.Book(), &pipeline.Pipeline{Spec: pipeline.Spec{Model: m.Model}}}, nil
		}
	}
	if err != nil { // it may be that of a pipeline
		return nil, err
	}
	return nil, ErrUnknown
}

// Known returns what a model by one of these names has said of itself, nil if it has not been asked yet; or ErrUnknown.
// Nothing is started for it.
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
	return nil, ErrUnknown
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

// naming finds the names of a model without starting it: as it describes itself if it runs, and as it is configured.
func (b *Backend) naming(key pipeline.ModelName) namedModel {
	m := namedModel{ModelName: key, keys: []pipeline.ModelName{key}}
	plugin := cmp.Or(key.Plugin, b.config().Plugins.Default)
	configured := cmp.Or(key.Model, b.config().DefaultModel, manifest.For(plugin).Model.Default,
		strings.TrimPrefix(filepath.Base(plugin), "embedsidecar-")) // the one model of a plugin goes by its name
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
	if b.o.Service != nil {
		b.services[key] = b.o.Service(e)
	} else {
		b.services[key] = embed.NewService(e, b.config().Workers.CacheBytes)
	}
	return b.services[key], nil
}
