package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	sidecarpkg "github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
)

// subject returns what is measured with the fake embedder: the program, or with --profile its parts in this process.
func (p *place) subject(ctx context.Context, pool *pgxpool.Pool, flags ...string) (*sidecar, error) {
	if p.profile == "" {
		return p.start(pool, slices.Concat(fake, flags)...)
	}
	return p.startInside(ctx, pool, slices.Contains(flags, "--into"))
}

// zeroCost is the fake plugin's embedder without its process.
type zeroCost struct{}

var _ embed.Embedder = zeroCost{}

func (zeroCost) Describe(context.Context) (embed.Description, error) {
	return embed.Description{
		Plugin: "fake", Model: "fake", Fingerprint: "bench", Dims: vector.DefaultDims,
		Deterministic: true,
	}, nil
}

func (zeroCost) Embed(_ context.Context, _ embed.Kind, texts []string) ([]embed.Result, error) {
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		results[i].Vector = vector.Of(text, vector.DefaultDims)
	}
	return results, nil
}

// inside is a sidecar in this process, under a CPU profile.
type inside struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	mu     sync.Mutex
	log    bytes.Buffer
	before time.Duration // CPU time of this process until then
	stop   func() error
}

func (i *inside) Write(b []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.log.Write(b)
}

func (i *inside) alive() error {
	select {
	case <-i.done:
		return fmt.Errorf("the sidecar ended by itself: %w", cmpErr(i.err))
	default:
		return nil
	}
}

func (i *inside) tail() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.log.String()
}

// pid is none: it is no process of its own.
func (i *inside) pid() int { return 0 }

func (i *inside) cpu() time.Duration { return cpuTime(os.Getpid()) - i.before }

func (i *inside) end() error { return i.stop() }

// startInside starts the parts. The profile of the last round is the one that stays.
func (p *place) startInside(ctx context.Context, pool *pgxpool.Pool, column bool) (*sidecar, error) {
	name := pool.Config().ConnConfig.Database
	url := p.pg.URL(name, "")
	run := &inside{done: make(chan struct{}), before: cpuTime(os.Getpid())}
	log := slog.New(slog.NewTextHandler(run, nil))
	spec := pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoTable: "docs_embedding",
		Plugin: "fake", Model: "fake", Priority: pipeline.Normal, Enabled: true,
	}
	if column {
		spec.IntoTable, spec.IntoColumn = "", "embedding"
	}
	own, err := database.Connect(ctx, url, database.Options{MaxConns: 8})
	if err != nil {
		return nil, err
	}
	direct, err := database.Connect(ctx, url, database.Options{MaxConns: 3})
	if err != nil {
		return nil, err
	}
	p.pools = append(p.pools, own, direct)
	description, _ := zeroCost{}.Describe(ctx)
	slot := "slot_" + name
	_, err = setup.Init(ctx, setup.Options{
		Pool: own, ReplicationDSN: url, Slot: slot, Publication: "sidecar", Specs: []pipeline.Spec{spec},
		Descriptions: map[string]embed.Description{spec.Name: description}, Log: log,
	})
	if err != nil {
		return nil, err
	}
	s := sidecarpkg.New(sidecarpkg.Options{
		Slot: slot, Instance: "bench", Version: "bench", Pool: own, Direct: direct, Log: log,
		Dial: func(ctx context.Context) (*pgconn.PgConn, error) {
			return database.ConnectReplication(ctx, url, database.Options{})
		},
		Load:     func(ctx context.Context) ([]pipeline.Pipeline, error) { return resolve.Load(ctx, own, slot) },
		Embedder: func(context.Context, *pipeline.Pipeline) (embed.Embedder, error) { return zeroCost{}, nil },
	})
	f, err := os.Create(p.profile)
	if err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ctx, run.cancel = context.WithCancel(ctx)
	go func() {
		defer close(run.done)
		run.err = s.Run(ctx)
	}()
	run.stop = func() error {
		run.cancel()
		<-run.done
		pprof.StopCPUProfile()
		own.Close()
		direct.Close()
		return errors.Join(run.err, f.Close())
	}
	return &sidecar{runner: run, pool: pool, slot: slot}, nil
}
