package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/compare"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// ModelChange asks for the next generation of a pipeline.
type ModelChange struct {
	resolve.ModelChange // without To it is to the configured model

	Beside   bool // take the recipe from the configuration
	DryRun   bool
	Estimate bool // estimate its backfill
}

// ModelChanged is the result of a model change; in a dry run, the expected result.
type ModelChanged struct {
	setup.Report

	Pipeline string
	Next     setup.Generation
	About    embed.Description
	Estimate *estimate.Estimate
	Depends  []string // objects that depend on the present vectors
}

// Plan returns the findings of a dry run with an estimate.
func (m *ModelChanged) Plan() generations.Plan {
	p := generations.Plan{
		From: cmp.Or(m.Next.Live.Model, m.Next.Live.Plugin),
		To:   cmp.Or(m.Next.Spec.Model, m.Next.Spec.Plugin), Dims: m.About.Dims, Makes: whatsOf(m.Steps),
		Locks: locksOf(&m.Next.Spec), Depends: append([]string{}, m.Depends...),
		Warnings: append([]string{}, m.Warnings...),
	}
	if m.Estimate != nil {
		p.Estimate, p.Words = *m.Estimate, m.Estimate.Line()
	}
	p.Pipeline = m.Pipeline
	return p
}

// locksOf lists the locks that a model change takes, and for how long.
func locksOf(next *pipeline.Spec) []string {
	if next.InSource() {
		return []string{
			"change: " + next.Source() + " for the moment of ADD COLUMN, tried for 2 s and given up",
			"switch: " + next.Source() + " for the moment of two RENAMEs, tried for 50 ms and given up, again and again",
			"statements that were prepared with SELECT * are refused once: the table gets a column",
		}
	}
	return []string{
		"change: no existing table",
		"switch: both embedding tables for the moment of two RENAMEs, tried for 50 ms and given up, again and again",
	}
}

// ChangeModel makes the next generation of a pipeline beside the one that serves. It is idempotent.
func ChangeModel(ctx context.Context, n Options, o ModelChange) (done ModelChanged, err error) {
	by, err := n.equip(ctx)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, by.close()) }()
	return changeModel(ctx, n, by, o)
}

func changeModel(ctx context.Context, n Options, by equipment, o ModelChange) (done ModelChanged, err error) {
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
	if o.Beside {
		if o.Recipe = configured(n.Config, live); o.Recipe == nil {
			return done, notConfigured(live, "with its new "+resolve.Recipe+": --config FILE")
		}
	}
	described, err := by.plugins.Describe(ctx, []pipeline.Spec{{Name: live.Name, Plugin: to.Plugin, Model: to.Model}})
	if err != nil {
		return done, err
	}
	done.About = described[live.Name]
	if done.Next, err = setup.NextGeneration(ctx, by.pool, live, to, done.About, o.Recipe); err != nil {
		return done, err
	}
	done.Next.Spec.ModelBudget = n.Config.BudgetOf(to.Model)
	so := setup.Options{Pool: by.owner, DryRun: o.DryRun}
	so.Failover, so.StopOnLost = !n.Config.Slot.NoFailover, n.Config.Slot.StopOnLost
	so.ReplicationDSN, so.Slot, so.Publication = n.Config.Database.Stream(), n.Config.Slot.Name, n.Config.Publication.Name
	done.Report, err = alone(ctx, n.Log, so, func(ctx context.Context, so setup.Options) (setup.Report, error) {
		return setup.ChangeModel(ctx, so, &done.Next, done.About)
	})
	if err != nil || !o.Estimate {
		return done, err
	}
	e, err := Estimated(ctx, n.Config, by.pool, by.plugins, done.Next.Spec, done.About)
	e.Pipeline = live.Name
	done.Estimate = &e
	if err != nil {
		return done, err
	}
	done.Depends, err = generations.Dependents(ctx, by.owner, live.ID, done.Next.Other(live.ID))
	return done, err
}

// changeModels starts the configured model changes. If one fails, its pipeline keeps the current model and waits.
func (n *Database) changeModels(ctx context.Context, so setup.Options, changes []resolve.ModelChange) error {
	for _, c := range changes {
		by := equipment{pool: so.Pool, owner: so.Pool, plugins: n.plugins}
		done, err := changeModel(ctx, n.options(), by, ModelChange{ModelChange: c})
		n.o.Setup(done.Report)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			n.o.Log.ErrorContext(ctx, "next generation not made: the model that serves stays", "pipeline", c.Pipeline,
				"model", c.To.Model, "error", err, "hints", problem.Hints(err))
			for _, spec := range so.Specs {
				if spec.Name == c.Pipeline {
					n.deployed.fails(spec, err)
				}
			}
			continue
		}
		n.o.Log.InfoContext(ctx, "next generation made", "pipeline", c.Pipeline, "model", c.To.Model, "by",
			"the configuration")
	}
	return nil
}

// planModel plans a model change in a running sidecar.
func (n *Database) planModel(ctx context.Context, pool *pgxpool.Pool, name string, to pipeline.ModelName,
) (generations.Plan, error) {
	done, err := changeModel(ctx, n.options(), equipment{pool: pool, owner: pool, plugins: n.plugins}, ModelChange{
		ModelChange: resolve.ModelChange{Pipeline: name, To: to}, DryRun: true, Estimate: true,
	})
	if err != nil {
		return generations.Plan{}, err
	}
	return done.Plan(), nil
}

// CompareModel asks both generations of a pipeline the same questions. Without questions it uses the texts of some
// rows.
func CompareModel(ctx context.Context, n Options, name string, questions []compare.Question) (r compare.Result,
	err error,
) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	plugins := embedders.New(n.Source)
	defer func() { err = errors.Join(err, plugins.Close()) }()
	return compareModel(ctx, pool, plugins, name, questions, nil)
}

func compareModel(ctx context.Context, pool *pgxpool.Pool, plugins *embedders.Pool, name string,
	questions []compare.Question, access *search.Access,
) (r compare.Result, err error) {
	all, err := lookup.All(ctx, pool)
	if err != nil {
		return r, err
	}
	live, err := lookup.Named(ctx, pool, []string{name})
	if err != nil {
		return r, err
	}
	at := slices.IndexFunc(all, func(p pipeline.Pipeline) bool { return p.BesideID == live[0].ID })
	if at < 0 {
		return r, problem.New(problem.Failed, fmt.Errorf("pipeline %q has no other generation to compare with", live[0].Name),
			"embedsidecar model change "+live[0].Name+" --to MODEL creates one")
	}
	both := [2]*pipeline.Pipeline{&live[0], &all[at]}
	for _, p := range both {
		if p.Status != pipeline.Active {
			return r, problem.New(problem.Failed, fmt.Errorf("pipeline %q cannot work: %s: %s", p.Name, p.Status, p.Detail))
		}
	}
	if len(questions) == 0 {
		texts, err := estimate.Texts(ctx, pool, both[0])
		if err != nil {
			return r, err
		}
		if questions = compare.OfTexts(texts, 50); len(questions) == 0 {
			return r, problem.New(problem.NoMatch, fmt.Errorf("pipeline %q has no text to ask for", live[0].Name))
		}
	}
	ask := query.Embedder(plugins)
	for _, p := range both { // the time to start a model is no query time
		if _, err := ask(ctx, p, questions[0].Text); err != nil {
			return r, err
		}
	}
	if r, err = compare.Run(ctx, pool, both, ask, questions, access); err != nil {
		return r, err
	}
	states, err := generations.States(ctx, pool, live[0].Name)
	for i := range r.Sides {
		for _, g := range states {
			if g.PipelineID == both[i].ID {
				r.Sides[i].Role, r.Sides[i].Model, r.Sides[i].Bytes, r.Pipeline = g.Role, g.Model, g.Bytes, g.Pipeline
			}
		}
	}
	return r, err
}

// target returns the model to change to: the requested one, or else the configured one.
func target(c *config.Config, live *pipeline.Pipeline, to pipeline.ModelName) (pipeline.ModelName, error) {
	if to != (pipeline.ModelName{}) {
		to.Plugin = cmp.Or(to.Plugin, c.PluginOf(to.Model))
		if err := c.Known(to.Plugin, to.Model); err != nil { // no other sidecar could find it
			return to, problem.New(problem.Usage, err, "put the folder into the folder of models (--model-dir), and give its name",
				"or name it under models in the file of every sidecar")
		}
		return to, nil
	}
	spec := configured(c, live)
	if spec == nil {
		return to, notConfigured(live, "or name the model: --to MODEL")
	}
	return spec.ModelName(), nil
}

func configured(c *config.Config, live *pipeline.Pipeline) *pipeline.Spec {
	specs := lookup.Configured(c, []pipeline.Pipeline{*live})
	at := slices.IndexFunc(specs, func(s pipeline.Spec) bool { return s.Name == live.Name })
	if at < 0 {
		return nil
	}
	return &specs[at]
}

func notConfigured(live *pipeline.Pipeline, hint string) error {
	return problem.New(problem.Usage, fmt.Errorf("pipeline %q is not in the configuration", live.Name),
		"name the file that has it: --config FILE", hint)
}
