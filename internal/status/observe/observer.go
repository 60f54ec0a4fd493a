// Package observe shows the state of the running program in probes, metrics and the control socket. It also reads what
// only the tables have.
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/ops"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// Options configure an Observer.
type Options struct {
	Config  *config.Config
	Log     *slog.Logger
	Build   Build
	Plugins *embedders.Pool
	Several bool // several databases, which come and go
}

// Observer collects the state of a running program. It is safe for concurrent use.
type Observer struct {
	o Options

	metrics  *metrics.Metrics // nil without a listener; Listen sets it before anything else starts
	scraping context.Context  //nolint:containedctx // ends queries started by scrapes
	services services

	mu       sync.Mutex
	sources  []*Source
	unserved func() int // returns the number of databases beyond the limit; nil: unknown
}

// New makes an Observer of a program.
func New(o Options) *Observer { return &Observer{o: o} }

// Listen starts the listener for probes, if one is configured. The returned function stops it.
func (o *Observer) Listen(ctx context.Context) (stop func() error, err error) {
	if o.o.Config.Ops.Listen == "" {
		return func() error { return nil }, nil
	}
	shown := metrics.New(metrics.Build{Version: o.o.Build.Version, Revision: o.o.Build.Revision}, health.Codes())
	scraping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if o.o.Several {
		shown.Several()
		shown.BeforeGather(o.count)
	}
	shown.BeforeGather(o.plugged)
	shown.BeforeGather(o.pooled)
	o.mu.Lock()
	o.metrics, o.scraping = shown, scraping
	for _, s := range o.sources {
		s.collect()
	}
	o.mu.Unlock()
	end := func() {
		cancel()
		for _, s := range o.all() {
			s.close()
		}
	}
	server, err := ops.Listen(ctx, ops.Options{
		Listen: o.o.Config.Ops.Listen, Ready: o.ready, Metrics: shown, Version: o.o.Build, Log: o.o.Log,
	})
	if err != nil {
		end()
		return nil, problem.New(problem.Usage, err)
	}
	finish := server.Start(ctx) // it still answers while work is finished
	return func() error {
		end()
		return finish()
	}, nil
}

// Unserved sets the function that counts the databases beyond the limit, which are not processed.
func (o *Observer) Unserved(count func() int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unserved = count
}

// Embedder returns the embedder of a pipeline, measured if there is a listener.
func (o *Observer) Embedder(_ context.Context, p *pipeline.Pipeline) (embed.Embedder, error) {
	h, err := o.o.Plugins.Get(p.Plugin, p.Model)
	if err != nil {
		return nil, err
	}
	if o.metrics == nil {
		return h, nil
	}
	return h.Measure(o.metrics.Embedder), nil
}

// Request records an answered query.
func (o *Observer) Request(handler, method string, status int, took time.Duration) {
	if o.metrics != nil {
		o.metrics.Request(handler, method, status, took)
	}
}

func (o *Observer) all() []*Source {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.sources)
}

func (o *Observer) ready(ctx context.Context) []ops.Check {
	if !o.o.Several {
		s := o.all()[0]
		now := s.Snapshot()
		now.Standing, now.Away = s.stand(ctx)
		return now.Ready()
	}
	list := o.all()
	slices.SortFunc(list, func(a, b *Source) int { return cmp.Compare(a.name, b.name) })
	snapshots := lists.Map(list, func(s *Source) Snapshot { return s.Snapshot() })
	plugins := Snapshot{Phase: Queries, Plugins: o.o.Plugins.States()}
	return append(databases(snapshots), plugins.Ready()...)
}

// databases returns a check for each of several databases. The process is ready while one of them works, or if there is
// none.
func databases(list []Snapshot) []ops.Check {
	var checks []ops.Check
	works, first := len(list) == 0, error(nil)
	file := ops.Check{Name: "configuration", Aside: true}
	for i := range list {
		s := &list[i]
		check := ops.Check{Name: "database " + s.Database, Aside: true, Err: s.streams()}
		if check.Err == nil {
			works = true
			check.Err = s.waiting()
		} else if first == nil {
			first = check.Err
		}
		checks = append(checks, check)
		if refused := s.refused(); refused != nil && file.Err == nil {
			file.Err = fmt.Errorf("database %s: %w", s.Database, refused)
		}
	}
	all := ops.Check{Name: "databases"}
	if !works {
		all.Err = fmt.Errorf("none of %d works; the first: %w", len(list), first)
	}
	return append(append([]ops.Check{all}, checks...), file)
}

// waiting returns the pipelines that are unintentionally not processed, as far as this process knows.
func (s *Snapshot) waiting() error {
	var list []string
	for i := range s.Pipelines {
		p := &s.Pipelines[i]
		if p.Problem != nil && !asWished(p.Problem.Code) {
			list = append(list, fmt.Sprintf("pipeline %s: %s", p.Pipeline.Name, p.Reason()))
		}
	}
	if list == nil {
		return nil
	}
	return errors.New(strings.Join(list, "; "))
}

// count exports the number of databases in each state.
func (o *Observer) count() {
	states := map[string]int{}
	for _, s := range o.all() {
		now := s.Snapshot()
		states[now.State()]++
	}
	o.mu.Lock()
	unserved := o.unserved
	o.mu.Unlock()
	if unserved != nil {
		states["unserved"] = unserved()
	}
	for _, state := range metrics.DatabaseStates {
		o.metrics.Databases().Set(state, float64(states[state]))
	}
}

// plugged exports the state of the plugins.
func (o *Observer) plugged() {
	for _, h := range o.o.Plugins.All() {
		stats, m := h.Stats(), o.metrics.Plugin(h.Plugin)
		m.Up(stats.Up, stats.Version)
		m.CircuitOpen.Set(metrics.Bool(stats.CircuitOpen()))
		h.Count(stats, m)
	}
}

// pooled exports the connections of all databases together.
func (o *Observer) pooled() {
	pools := map[string][]*pgxpool.Pool{}
	for _, s := range o.all() {
		s.mu.Lock()
		if s.pool != nil {
			pools["work"], pools["stream"] = append(pools["work"], s.pool), append(pools["stream"], s.direct)
		}
		s.mu.Unlock()
	}
	for name, list := range pools {
		var idle, acquired, constructing, most int32
		for _, pool := range list {
			stat := pool.Stat()
			idle, acquired = idle+stat.IdleConns(), acquired+stat.AcquiredConns()
			constructing, most = constructing+stat.ConstructingConns(), most+stat.MaxConns()
		}
		m := o.metrics.Pool(name)
		m.Set("idle", float64(idle))
		m.Set("acquired", float64(acquired))
		m.Set("constructing", float64(constructing))
		m.Set("max", float64(most))
	}
}

// Build describes the program's build.
type Build struct {
	Version        string `json:"version"`
	Revision       string `json:"revision,omitempty"`
	Go             string `json:"go"`
	Platform       string `json:"platform"`
	PluginProtocol int    `json:"plugin_protocol"`
}

// BuildOf returns the build of this program. Version and revision come from the linker flags, or else from the Go
// tool's build info.
func BuildOf(version, revision string) Build {
	b := Build{
		Version: version, Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		PluginProtocol: pluginpb.ProtocolVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "unknown" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && b.Revision == "" {
			b.Revision = setting.Value
		}
	}
	return b
}
