package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/node/connection"
	"github.com/embedsidecar/embedsidecar/internal/node/embedders"
	"github.com/embedsidecar/embedsidecar/internal/node/lookup"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/problem"
	"github.com/embedsidecar/embedsidecar/internal/publish"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/worker"
)

// runCommand streams changes and embeds rows until it is told to stop.
type runCommand struct {
	once     bool // catch up with everything committed before the start, then end
	noInit   bool // set nothing up
	noChange bool // set up what is missing, and leave as it is what is set up otherwise
}

func newRun() *command {
	c := &runCommand{}
	return &command{
		name: "run", group: groupStart, usage: "embed rows as they change, until told to stop",
		description: "Sets up what is missing if the role may (schema, publication, slot, destination) and prints what it made and how to undo it. If the role may not, prints the SQL for an owner to run and ends with status 7. SIGTERM and SIGINT end it in order: what is being embedded is finished or given back; a second signal ends it at once.",
		flags: []cli.Flag{
			&cli.BoolFlag{
				Name: "once", Destination: &c.once, DisableDefaultText: true,
				Usage: "catch up with all that is committed now, then end",
			},
			&cli.BoolFlag{
				Name: "no-change", Destination: &c.noChange, DisableDefaultText: true,
				Usage: "leave a pipeline as it is that is set up otherwise than it is configured",
			},
			&cli.BoolFlag{
				Name: "no-init", Destination: &c.noInit, DisableDefaultText: true,
				Usage: "set nothing up; end with status 3 when something is missing",
			},
		},
		settings: []string{
			config.GroupDatabase, config.GroupEmbedding, config.GroupWork, config.GroupQueries,
			config.GroupOps,
		},
		pipelines: true,
		daemon:    true,
		run:       c.run,
	}
}

func (c *runCommand) run(ctx context.Context, env *environment) error {
	if c.once && !env.config.Enabled {
		return misuse("--once would wait for ever: the sidecar is switched off by %s", env.config.Origin("enabled"))
	}
	err := c.work(ctx, env)
	if !c.once && exitCode(ctx, err) == exitInterrupted {
		return nil // that is how it is told to stop
	}
	return err
}

// work starts the parts in their order, runs them, and ends them the other way round.
func (c *runCommand) work(ctx context.Context, env *environment) (err error) {
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	w := newWatch(env, plugins)
	stop, err := w.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer w.supervise(ctx)()
	defer w.steer(ctx)()
	answers := newAnswers(env, plugins, w.embedder)
	answers.database = true
	finish := func() error { return nil }
	if env.config.Queries.Listen != "" {
		if finish, err = answers.listen(ctx, env.config.Queries.Listen, w.request); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, finish()) }()
	}

	pool, err := connection.Retry(ctx, env.connections(), func(ctx context.Context) (*pgxpool.Pool, error) {
		return env.connections().Pool(ctx, env.connections().WorkConns(len(env.config.Pipelines)))
	})
	if err != nil {
		return err
	}
	defer pool.Close()

	direct, err := connection.Retry(ctx, env.connections(), func(ctx context.Context) (*pgxpool.Pool, error) {
		return env.connections().Server(ctx, pool,
			connection.Stream)
	})
	if err != nil {
		return err
	}
	defer direct.Close()
	questions := pool
	if env.config.Queries.Listen != "" { // searches wait for one another and not for the work, nor it for them
		if questions, err = connection.Retry(ctx, env.connections(), func(ctx context.Context) (*pgxpool.Pool, error) {
			return env.connections().Pool(ctx,
				connection.Queries)
		}); err != nil {
			return err
		}
		defer questions.Close()
	}
	defer func() { _ = finish() }() // what is under way needs the connections; its error is told above
	// The server may restart in the middle of it. What was made by then is found the next time.
	prepare := func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.prepare(ctx, env, pool, direct, plugins)
	}
	if _, err := connection.Retry(ctx, env.connections(), prepare); err != nil {
		return err
	}
	if c.once {
		if err := workable(ctx, env, pool, plugins); err != nil {
			return err
		}
	}

	s := sidecar.New(sidecar.Options{
		Slot: env.config.Slot.Name, Instance: env.config.Instance, Version: thisBuild().Version,
		Pool: pool, Direct: direct, Dial: env.connections().Dial,
		Load: func(ctx context.Context) ([]pipeline.Pipeline, error) {
			return resolve.Load(ctx, pool, env.config.Slot.Name)
		},
		Repair:     func(ctx context.Context) error { return publish.Republish(ctx, direct, env.config.Slot.Name) },
		Embedder:   w.embedder,
		Log:        env.log,
		Disabled:   !env.config.Enabled,
		StopOnLost: env.config.Slot.StopOnLost,
		Failover:   !env.config.Slot.NoFailover,
		Loops:      connection.Loops(env.config),
		BatchRows:  env.config.Workers.BatchRows,
		Lease:      env.config.Lease,
		Retry: worker.Retry{
			MaxAttempts: env.config.Retry.MaxAttempts, Initial: env.config.Retry.Initial,
			Max: env.config.Retry.Max,
		},
		// 0 is the sidecar's own default.
		DrainTimeout: max(env.config.Workers.DrainTimeout, time.Nanosecond),
		CacheBytes:   env.config.Workers.CacheBytes,
		Fresh:        w.fresh(),
		Redact:       env.redact.Text,
	})
	answers.follow(s, questions)
	w.follow(s, pool, direct) //nolint:contextcheck // what scrapes ask for ends with the listener
	w.working(ctx)
	if !c.once {
		defer keepIndexes(ctx, env, pool, direct)()
		return explained(s.Run(ctx))
	}
	if err := c.catchUp(ctx, env, s, pool); err != nil {
		return err
	}
	_, err = buildIndexes(ctx, env, pool, direct)
	return err
}

// prepare sets up what is missing, unless told not to, and makes sure that there is something to work on.
func (c *runCommand) prepare(ctx context.Context, env *environment, pool, direct *pgxpool.Pool,
	plugins *embedders.Pool,
) error {
	ours, err := lookup.Stored(ctx, pool, env.config.Slot.Name)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return err
	}
	specs := lookup.Configured(env.config, ours)
	if len(specs) == 0 && len(ours) == 0 {
		return fail(exitUsage, fmt.Errorf("there are no pipelines: none is configured, and none is set up for slot %q",
			env.config.Slot.Name),
			"name one: --table public.docs --columns title,body --into embedding",
			"or several in a file: --config FILE", "or "+lookup.OtherSlots(ctx, pool))
	}
	if len(specs) == 0 {
		env.tellModel(ours)
	}
	if c.noInit {
		if err != nil {
			return err
		}
		for _, spec := range specs {
			if at := lookup.Find(ours, spec.Name); at >= 0 {
				env.tellKept(spec, ours[at].Spec)
				continue
			}
			hint := "run embedsidecar init, or run without --no-init"
			if at := slices.IndexFunc(ours, func(p pipeline.Pipeline) bool { return lookup.SameEnds(p.Spec, spec) }); at >= 0 {
				hint = fmt.Sprintf("it is set up as %q: embedsidecar init gives it the new name", ours[at].Name)
			}
			return fail(exitNotSetUp, fmt.Errorf("pipeline %q is not set up for slot %q", spec.Name, env.config.Slot.Name), hint)
		}
		return nil
	}
	specs, described, err := describedSpecs(ctx, env, plugins, specs, ours)
	if err != nil {
		return err
	}
	owner := pool // init may be for another role than the stream
	if database.Pooled(pool) {
		owner = direct
	}
	o := setup.Options{Pool: owner, Specs: specs, Descriptions: described, NoChange: c.noChange, Starting: true}
	done, err := initialize(ctx, env, o)
	env.tellSteps(done.Steps, "made")
	if len(specs) > 0 { // without any, all that is set up is meant
		env.tellOthers(done.Others)
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	// What happened to the table of one pipeline since it was set up must not keep the others from work.
	var others bool
	if o.Specs, others = unbroken(specs, ours); !others {
		return err
	}
	done, again := initialize(ctx, env, o)
	env.tellSteps(done.Steps, "made")
	if again != nil {
		return err
	}
	env.log.ErrorContext(ctx, "a pipeline cannot work now: it waits, and the others go on", "error", err, "ways_out",
		problem.Hints(err))
	return nil
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

// describedSpecs asks the embedders of the configured pipelines what they are. One that cannot be had must not keep
// the others from work: if its pipeline is set up already, it is left out, and works when its embedder does. Not so
// when a person must mend something and nothing else would work meanwhile.
func describedSpecs(ctx context.Context, env *environment, plugins *embedders.Pool, specs []pipeline.Spec,
	stored []pipeline.Pipeline,
) ([]pipeline.Spec, map[string]embed.Description, error) {
	described, err := plugins.Describe(ctx, specs)
	if err == nil {
		return specs, described, nil
	}
	var able []pipeline.Spec
	known := true
	for _, spec := range specs {
		if _, ok := described[spec.Name]; ok {
			able = append(able, spec)
		} else {
			known = known && lookup.Find(stored, spec.Name) >= 0
		}
	}
	if !known || ctx.Err() != nil || len(able) == 0 && exitCode(ctx, err) == exitUsage {
		return nil, nil, err
	}
	env.log.ErrorContext(ctx, "an embedder cannot be had: its pipelines wait", "error", err, "ways_out",
		problem.Hints(err))
	return able, described, nil
}

// workable looks for a pipeline whose embedder is not the one its vectors were made with, or cannot be had. A sidecar
// lets such a pipeline wait until somebody acts; one that is to catch up and end would wait for ever.
func workable(ctx context.Context, env *environment, pool *pgxpool.Pool, plugins *embedders.Pool) error {
	pipelines, err := lookup.Stored(ctx, pool, env.config.Slot.Name)
	if err != nil {
		return err
	}
	for i := range pipelines {
		if !pipelines[i].Enabled || pipelines[i].Status != pipeline.Active {
			continue // told at the end, not waited for
		}
		if _, err := plugins.Matching(ctx, &pipelines[i]); exitCode(ctx, err) == exitUsage {
			return err
		}
	}
	return ctx.Err()
}

// catchUp runs the sidecar until everything committed before now is worked.
func (c *runCommand) catchUp(ctx context.Context, env *environment, s *sidecar.Sidecar, pool *pgxpool.Pool) error {
	lsn, err := report.Now(ctx, pool)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		state report.CaughtUp
		err   error
	}
	ended := make(chan end, 1)
	go func() {
		state, err := report.Wait(running, pool, env.config.Slot.Name, lsn)
		cancel()
		ended <- end{state, err}
	}()
	err = s.Run(running)
	cancel()
	e := <-ended
	switch {
	// others may have done it all before it had begun
	case err != nil && (e.err != nil || !errors.Is(err, context.Canceled)):
		return explained(err)
	case e.err != nil && ctx.Err() != nil:
		return fmt.Errorf("not caught up with %s: %s: %w", lsn, progress(e.state), ctx.Err())
	case e.err != nil:
		return e.err
	}
	env.say("caught up with %s", lsn)
	return leftovers(ctx, env, pool, e.state)
}
