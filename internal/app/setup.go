package app

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// SetUpOptions say how far a set-up goes that nothing runs behind.
type SetUpOptions struct {
	Adopt    bool // the database is a copy of another
	DryRun   bool
	NoChange bool // what is set up otherwise stays so
	Estimate bool // say of pipelines that are new, or embed other texts than before, what their backfill will take
}

// SetUpDone is what a set-up made, or would make.
type SetUpDone struct {
	setup.Report

	Begun       bool // something was planned, at least
	Estimates   []estimate.Estimate
	Unestimated []error // why there is no estimate of others
}

// SetUp sets up what the configured pipelines need. What was done is there beside an error, too.
func SetUp(ctx context.Context, n Options, o SetUpOptions) (done SetUpDone, err error) {
	by, err := n.equip(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, by.close()) }()
	var upgraded setup.Report
	if !o.DryRun {
		upgraded, err = upgrade(ctx, n.Log, setup.Options{Pool: by.owner})
		if done.Report, done.Begun = upgraded, len(upgraded.Steps) > 0; err != nil {
			return done, err
		}
	}
	already, err := o.known(ctx, by.pool, n.Config.Slot.Name)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return done, err
	}
	o.Estimate = o.Estimate && older(err) == nil // what is new is not known
	specs := lookup.Configured(n.Config, already)
	described, err := by.plugins.Describe(ctx, specs)
	if err != nil {
		return done, err
	}
	done.Begun = true
	done.Report, err = Initialize(ctx, n.Config, n.Log, setup.Options{
		Pool: by.owner, Specs: specs, Descriptions: described, Adopt: o.Adopt, DryRun: o.DryRun, NoChange: o.NoChange,
	})
	done.Steps = append(upgraded.Steps, done.Steps...)
	if err != nil || !o.Estimate {
		return done, err
	}
	for _, spec := range specs {
		if at := lookup.Find(already, spec.Name); at >= 0 && sameTexts(spec, already[at].Spec) {
			continue
		}
		e, err := estimated(ctx, by.pool, by.plugins, spec, described[spec.Name], n.Config.PriceOf(spec.Model))
		if err != nil {
			done.Unestimated = append(done.Unestimated, err)
			continue
		}
		done.Estimates = append(done.Estimates, e)
	}
	return done, nil
}

// sameTexts reports whether a pipeline embeds the texts that it embeds already, as far as its definition goes.
func sameTexts(configured, set pipeline.Spec) bool {
	return configured.Text == set.Text && configured.Filter == set.Filter && configured.Chunking == set.Chunking &&
		slices.Equal(configured.Columns, set.Columns)
}

// known returns the pipelines that are set up already.
func (o *SetUpOptions) known(ctx context.Context, pool *pgxpool.Pool, slot string) ([]pipeline.Pipeline, error) {
	if o.Adopt { // pipelines may come from the slot of the original
		return lookup.All(ctx, pool)
	}
	return lookup.Stored(ctx, pool, slot)
}

func estimated(ctx context.Context, pool *pgxpool.Pool, plugins *embedders.Pool, spec pipeline.Spec,
	about embed.Description, price float64,
) (estimate.Estimate, error) {
	by, err := plugins.Get(spec.Plugin, spec.Model)
	if err != nil {
		return estimate.Estimate{}, err
	}
	return estimate.Make(ctx, estimate.Options{DB: pool, Spec: spec, About: about, By: by, Price: price})
}
