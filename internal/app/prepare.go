package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// upgraded brings a schema of an older version to this program's, or waits until its owner has done so. Who is to catch
// up and end does not wait.
func (n *Database) upgraded(ctx context.Context, p *pools, o RunOptions) error {
	const pause, again = time.Second, time.Minute
	try := func(ctx context.Context) (setup.Report, error) {
		err := catalog.CheckVersion(ctx, p.work)
		old := older(err)
		if old == nil {
			if problem.Of(err) == problem.Connect {
				return setup.Report{}, err
			}
			return setup.Report{}, nil // what else there is to say of the schema, its readers say
		}
		if o.NoInit || o.Role == Stream {
			return setup.Report{}, old
		}
		done, err := alone(ctx, n.o.Log, setup.Options{Pool: p.owner(), Starting: true}, setup.Upgrade)
		if problem.Of(err) == problem.Permission {
			err = old
		}
		return done, err
	}
	var told time.Time
	for {
		done, err := connection.Retry(ctx, n.open, try)
		n.o.Setup(done)
		if older(err) == nil && !database.LockedOut(err) || o.Reached != nil {
			n.source.Wait(nil)
			return err
		}
		n.source.Wait(err)
		if now := time.Now(); now.Sub(told) > again {
			n.o.Log.WarnContext(ctx, "waits for the schema to be upgraded", "reason", err, "hints", problem.Hints(err))
			told = now
		}
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

// prepare sets up what is missing, unless told not to, and makes sure that there is something to work on.
func (n *Database) prepare(ctx context.Context, p *pools, o RunOptions) error {
	slot := n.o.Config.Slot.Name
	ours, err := lookup.StoredBy(ctx, &n.loader, p.work, slot)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return err
	}
	specs := lookup.Configured(n.o.Config, ours)
	if len(specs) == 0 && len(ours) == 0 {
		class := problem.Usage
		if o.NoInit || o.Role == Stream {
			class = problem.NotSetUp // they are another's to set up, and may come
		}
		return problem.New(class, fmt.Errorf("there are no pipelines: none is configured, and none is set up for slot %q",
			slot),
			"name one: --table public.docs --columns title,body --into embedding",
			"or several in a file: --config FILE", "or "+lookup.OtherSlots(ctx, p.work))
	}
	if len(specs) == 0 {
		n.warn(idleModel(n.o.Config, ours))
	}
	if o.NoInit || o.Role == Stream {
		if err != nil {
			return err
		}
		for _, spec := range specs {
			if at := lookup.Find(ours, spec.Name); at >= 0 {
				n.warn(kept(spec, ours[at].Spec))
				continue
			}
			hint := "run embedsidecar init, or run without --no-init"
			if at := slices.IndexFunc(ours, func(p pipeline.Pipeline) bool { return lookup.SameEnds(p.Spec, spec) }); at >= 0 {
				hint = fmt.Sprintf("it is set up as %q: embedsidecar init gives it the new name", ours[at].Name)
			}
			return problem.New(problem.NotSetUp, fmt.Errorf("pipeline %q is not set up for slot %q", spec.Name, slot), hint)
		}
		return nil
	}
	specs, described, err := n.describe(ctx, specs, ours)
	if err != nil {
		return err
	}
	so := setup.Options{Pool: p.owner(), Specs: specs, Descriptions: described, NoChange: o.NoChange, Starting: true}
	if so.Pool == p.work { // as the same role
		so.Loader = &n.loader
	}
	done, err := Initialize(ctx, n.o.Config, n.o.Log, so)
	if len(specs) == 0 {
		done.Others = nil // all that is set up is meant
	}
	n.o.Setup(done)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// What happened to the table of one pipeline since it was set up must not keep the others from work.
	var others bool
	if so.Specs, others = unbroken(specs, ours); !others {
		return err
	}
	done, again := Initialize(ctx, n.o.Config, n.o.Log, so)
	done.Others = nil // they were told
	n.o.Setup(done)
	if again != nil {
		return err
	}
	n.o.Log.ErrorContext(ctx, "a pipeline cannot work now: it waits, and the others go on", "error", err, "hints",
		problem.Hints(err))
	return nil
}

// warn tells what somebody should know, if there is anything.
func (n *Database) warn(what string) {
	if what != "" {
		n.o.Warn(what)
	}
}

// unbroken leaves out the pipelines that are set up but cannot work now. others reports whether there is one that can.
func unbroken(specs []pipeline.Spec, stored []pipeline.Pipeline) (able []pipeline.Spec, others bool) {
	for _, spec := range specs {
		if at := lookup.Find(stored, spec.Name); at < 0 || stored[at].Status == pipeline.Active {
			able = append(able, spec)
		}
	}
	others = slices.ContainsFunc(stored, func(p pipeline.Pipeline) bool { return p.Status == pipeline.Active })
	return able, others && len(able) < len(specs)
}

// describe asks the embedders of the configured pipelines what they are. One that cannot be had must not keep
// the others from work: if its pipeline is set up already, it is left out, and works when its embedder does. Not so
// when a person must mend something and nothing else would work meanwhile.
func (n *Database) describe(ctx context.Context, specs []pipeline.Spec, stored []pipeline.Pipeline,
) ([]pipeline.Spec, map[string]embed.Description, error) {
	described, err := n.plugins.Describe(ctx, specs)
	if err == nil {
		return specs, described, nil
	}
	var able []pipeline.Spec
	known, down := true, map[pipeline.ModelName]bool{}
	for _, spec := range specs {
		if _, ok := described[spec.Name]; ok {
			able = append(able, spec)
		} else {
			known = known && lookup.Find(stored, spec.Name) >= 0
			down[spec.ModelName()] = true
		}
	}
	others := slices.ContainsFunc(stored, func(p pipeline.Pipeline) bool {
		return p.Status == pipeline.Active && !down[p.Spec.ModelName()]
	})
	if !known || ctx.Err() != nil || len(able) == 0 && !others && problem.Of(err) == problem.Usage {
		return nil, nil, err
	}
	n.o.Log.ErrorContext(ctx, "an embedder cannot be had: its pipelines wait", "error", err,
		"hints", problem.Hints(err))
	return able, described, nil
}

// workable looks for a pipeline whose embedder is not the one its vectors were made with, or cannot be had. A sidecar
// lets such a pipeline wait until somebody acts; one that is to catch up and end would wait for ever.
func (n *Database) workable(ctx context.Context, pool *pgxpool.Pool) error {
	pipelines, err := lookup.StoredBy(ctx, &n.loader, pool, n.o.Config.Slot.Name)
	if err != nil {
		return err
	}
	for i := range pipelines {
		if !pipelines[i].Enabled || pipelines[i].Status != pipeline.Active {
			continue // told at the end, not waited for
		}
		if _, err := n.plugins.Matching(ctx, &pipelines[i]); err != nil && ctx.Err() == nil &&
			problem.Of(err) == problem.Usage {
			return err
		}
	}
	return ctx.Err()
}
