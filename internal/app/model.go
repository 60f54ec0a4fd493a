package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// ModelChange asks for the next generation of a pipeline.
type ModelChange struct {
	Pipeline string
	To       pipeline.ModelName // "": as the configuration has it
	DryRun   bool
	Estimate bool // say what its backfill will take
}

// ModelChanged is what was made, or would be.
type ModelChanged struct {
	setup.Report

	Pipeline string
	Next     setup.Generation
	About    embed.Description
	Estimate *estimate.Estimate
}

// ChangeModel makes the next generation of a pipeline beside the one that serves. Done twice, it does nothing the second
// time.
func ChangeModel(ctx context.Context, n Options, o ModelChange) (done ModelChanged, err error) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return done, err
	}
	defer pool.Close()
	server, err := open.Server(ctx, pool, connection.Few)
	if err != nil {
		return done, err
	}
	defer server.Close()
	plugins := embedders.New(embedders.Source{Config: n.Config, Find: n.Find, Log: n.Log, Redact: n.Redact})
	defer func() { err = errors.Join(err, plugins.Close()) }()
	return changeModel(ctx, n, changing{pool, server, plugins}, o)
}

// changing is what a change of a model works with.
type changing struct {
	pool    *pgxpool.Pool // as the role that works
	owner   *pgxpool.Pool // straight to the server
	plugins *embedders.Pool
}

func changeModel(ctx context.Context, n Options, by changing, o ModelChange) (done ModelChanged, err error) {
	found, err := lookup.Named(ctx, by.pool, []string{o.Pipeline})
	if err != nil {
		return done, err
	}
	live := &found[0]
	done.Pipeline = live.Name
	to, err := target(n.Config, live, o.To)
	if err != nil {
		return done, err
	}
	described, err := by.plugins.Describe(ctx, []pipeline.Spec{{Name: live.Name, Plugin: to.Plugin, Model: to.Model}})
	if err != nil {
		return done, err
	}
	done.About = described[live.Name]
	if done.Next, err = setup.NextGeneration(ctx, by.pool, live, to, done.About); err != nil {
		return done, err
	}
	so := setup.Options{Pool: by.owner, DryRun: o.DryRun}
	so.Failover, so.StopOnLost = !n.Config.Slot.NoFailover, n.Config.Slot.StopOnLost
	so.ReplicationDSN, so.Slot, so.Publication = n.Config.Database.Stream(), n.Config.Slot.Name, n.Config.Publication.Name
	done.Report, err = alone(ctx, n.Log, so, func(ctx context.Context, so setup.Options) (setup.Report, error) {
		return setup.ChangeModel(ctx, so, &done.Next, done.About)
	})
	if err != nil || !o.Estimate {
		return done, err
	}
	e, err := estimated(ctx, by.pool, by.plugins, done.Next.Spec, done.About, n.Config.PriceOf(to.Model))
	e.Pipeline = live.Name
	done.Estimate = &e
	return done, err
}

// target is the model to change to: what is asked for, or else what the configuration has for the pipeline.
func target(c *config.Config, live *pipeline.Pipeline, to pipeline.ModelName) (pipeline.ModelName, error) {
	specs := lookup.Configured(c, []pipeline.Pipeline{*live})
	at := -1
	for i := range specs {
		if specs[i].Name == live.Name {
			at = i
		}
	}
	if to != (pipeline.ModelName{}) {
		if to.Plugin == "" && at >= 0 && specs[at].Model == to.Model {
			to.Plugin = specs[at].Plugin
		}
		return to, nil
	}
	if at < 0 {
		return to, problem.New(problem.Usage, fmt.Errorf("pipeline %q: name the model", live.Name),
			"--to MODEL, or --config FILE with the new model of the pipeline")
	}
	return specs[at].ModelName(), nil
}
