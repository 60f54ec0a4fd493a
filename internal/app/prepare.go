package app

import (
	"cmp"
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

// prepare sets up what is missing, unless told not to, and makes sure that there is something to work on. What one
// pipeline lacks keeps no other from its work: what became of each is in n.deployed.
func (n *Database) prepare(ctx context.Context, p *pools, o RunOptions) error {
	slot := n.config().Slot.Name
	ours, err := n.loader.Load(ctx, p.work, slot)
	if _, missing := errors.AsType[*refusal.NotSetUpError](err); err != nil && !missing {
		return err
	}
	asked := false
	if err == nil {
		if asked, err = n.declared(ctx, p.work); err != nil {
			return err
		}
	}
	specs := lookup.Configured(n.config(), ours)
	if len(specs) == 0 && len(ours) == 0 && len(n.config().InSchemas()) > 0 {
		var streams bool // else nobody would read its slot
		if err == nil {
			err = p.work.QueryRow(ctx, "SELECT EXISTS (SELECT FROM embedsidecar.lsn_checkpoint WHERE slot_name = $1)", slot).
				Scan(&streams)
		}
		if !streams {
			return problem.New(problem.NotSetUp, errNoSchema, "run looks for one every "+lookEvery.String())
		}
	} else if len(specs) == 0 && len(ours) == 0 && !asked {
		class := problem.Usage
		if o.NoInit || o.Role == Stream {
			class = problem.NotSetUp // they are another's to set up, and may come
		}
		return problem.New(class, fmt.Errorf("there are no pipelines: none is configured, and none is set up for slot %q",
			slot),
			"name one: --table public.docs --columns title,body --into embedding",
			"or several in a file: --config FILE", "or "+lookup.OtherSlots(ctx, p.work))
	}
	if len(specs) == 0 && len(ours) > 0 {
		n.warn(idleModel(n.config(), ours))
	}
	n.deployed.configure(specs)
	n.deployed.mu.Lock()
	for i := range ours {
		if _, is := n.deployed.specs[ours[i].Name]; !is && ours[i].Beside == 0 {
			n.deployed.leaves(ours[i].Name)
		}
	}
	n.deployed.mu.Unlock()
	if o.NoInit || o.Role == Stream {
		if err != nil {
			return err
		}
		return n.accept(ctx, p, o, specs, ours)
	}
	if err == nil { // others shall see what is configured here before it is set up
		n.declare(ctx, p.work)
	}
	return n.setUp(ctx, p, specs, ours, true)
}

// accept takes the pipelines as they are set up, where this process sets none up.
func (n *Database) accept(ctx context.Context, p *pools, o RunOptions, specs []pipeline.Spec, ours []pipeline.Pipeline,
) error {
	there := 0
	for _, spec := range specs {
		if at := lookup.Find(ours, spec.Name); at >= 0 {
			there++
			if otherwise := kept(spec, ours[at].Spec); otherwise != "" {
				n.warn(otherwise)
				n.deployed.fails(spec, errors.New(otherwise))
			}
		}
	}
	missing := n.notSetUp(specs, ours)
	if missing != nil && (there == 0 || o.Reached != nil) {
		return missing
	}
	n.tellWaits(ctx, missing)
	n.declare(ctx, p.work)
	return nil
}

// notSetUp notes which pipelines are not set up, where this process sets none up, and returns the first one's error.
func (n *Database) notSetUp(specs []pipeline.Spec, ours []pipeline.Pipeline) (first error) {
	for _, spec := range specs {
		if lookup.Find(ours, spec.Name) >= 0 {
			continue
		}
		hint := "run embedsidecar init, or run without --no-init"
		if at := slices.IndexFunc(ours, func(p pipeline.Pipeline) bool { return lookup.SameEnds(p.Spec, spec) }); at >= 0 {
			hint = fmt.Sprintf("it is set up as %q: embedsidecar init gives it the new name", ours[at].Name)
		}
		err := problem.New(problem.NotSetUp, fmt.Errorf("pipeline %q is not set up for slot %q", spec.Name,
			n.config().Slot.Name), hint)
		n.deployed.fails(spec, err)
		if first == nil {
			first = err
		}
	}
	return first
}

// setUp sets up what the pipelines lack. Those that cannot be set up are left out: it fails where none is left. With
// fresh the configuration has come now.
func (n *Database) setUp(ctx context.Context, p *pools, specs []pipeline.Spec, ours []pipeline.Pipeline,
	fresh bool,
) error {
	const tries = 5
	for i := 1; ; i++ {
		err := n.setUpNamed(ctx, p, specs, ours, fresh)
		if i == tries || !errors.Is(err, setup.ErrExchanged) {
			return err
		}
		if ours, err = n.loader.Load(ctx, p.work, n.config().Slot.Name); err != nil {
			return err
		}
	}
}

// setUpNamed is setUp, which fails if schemas exchange their names meanwhile.
func (n *Database) setUpNamed(ctx context.Context, p *pools, specs []pipeline.Spec,
	ours []pipeline.Pipeline, fresh bool,
) error {
	exchanged, err := exchangeNames(ctx, n.config(), p.owner(), ours)
	if err != nil {
		return err
	}
	if len(exchanged) > 0 {
		n.o.Log.InfoContext(ctx, "schemas have exchanged their names, and so do their pipelines", "names", exchanged)
		n.deployed.mu.Lock()
		for _, name := range exchanged {
			if _, configured := n.deployed.specs[name]; !configured {
				n.deployed.leaves(name)
			}
		}
		n.deployed.mu.Unlock()
		if ours, err = n.loader.Load(ctx, p.work, n.config().Slot.Name); err != nil {
			return err
		}
	}
	able, described, err := n.describe(ctx, specs, ours)
	if err != nil {
		return err
	}
	so := setup.Options{
		Pool: p.owner(), Specs: able, Descriptions: described, Starting: true,
		Held: n.holders(ctx, p.work, fresh),
	}
	if so.Pool == p.work { // as the same role
		so.Loader = &n.loader
	}
	failed, err := n.initialize(ctx, so, specs, ours)
	if err != nil {
		return err
	}
	n.declare(ctx, p.work)
	n.own(ctx, p.work)
	n.tellWaits(ctx, failed)
	return nil
}

// initialize sets up pipelines, without those that stand in the way of the others. failed is what these lack.
func (n *Database) initialize(ctx context.Context, so setup.Options, specs []pipeline.Spec, ours []pipeline.Pipeline,
) (failed, err error) {
	for {
		done, err := Initialize(ctx, n.config(), n.o.Log, so)
		if len(specs) == 0 || failed != nil || n.deployed.settled {
			done.Others = nil // all that is set up is meant; or they were told
		}
		n.o.Setup(done)
		if err == nil {
			n.deployed.keeps(so.Specs, done.Kept)
			return failed, n.changeModels(ctx, so, done.Changes)
		}
		sick := refusal.Culprits(err)
		rest := slices.DeleteFunc(slices.Clone(so.Specs), func(s pipeline.Spec) bool { return sick[s.Name] != nil })
		failed = cmp.Or(failed, err) // the first names all that stands in the way
		if ctx.Err() != nil || len(rest) == len(so.Specs) || !n.othersWork(rest, specs, ours, sick) {
			return nil, failed
		}
		for _, spec := range so.Specs {
			n.deployed.fails(spec, sick[spec.Name])
		}
		so.Specs = rest
	}
}

// tellWaits logs that pipelines cannot work as they are configured, once for each reason.
func (n *Database) tellWaits(ctx context.Context, err error) {
	before := n.deployed.failed
	n.deployed.failed = err
	if err == nil || before != nil && before.Error() == err.Error() {
		return
	}
	n.o.Log.ErrorContext(ctx, "a pipeline cannot be set up now: it is tried again, and the others go on",
		"error", err, "hints", problem.Hints(err))
}

// othersWork reports whether some pipeline may work beside those that are sick: one that can be set up, or one that is,
// even a sick one that is set up as it is configured.
func (n *Database) othersWork(rest, specs []pipeline.Spec, ours []pipeline.Pipeline, sick map[string]error) bool {
	return len(rest) > 0 || slices.ContainsFunc(ours, func(p pipeline.Pipeline) bool {
		return p.Status == pipeline.Active && (sick[p.Name] == nil || slices.ContainsFunc(specs,
			func(s pipeline.Spec) bool { return s.Name == p.Name && kept(s, p.Spec) == "" }))
	})
}

// warn tells what somebody should know, if there is anything.
func (n *Database) warn(what string) {
	if what != "" {
		n.o.Warn(what)
	}
}

// describe asks the embedders of the configured pipelines what they are. One that cannot be had must not keep
// the others from work: its pipelines are left out, and are set up when it can. Not so when a person must mend
// something and nothing else would work meanwhile.
func (n *Database) describe(ctx context.Context, specs []pipeline.Spec, stored []pipeline.Pipeline,
) ([]pipeline.Spec, map[string]embed.Description, error) {
	described, failed := n.plugins.DescribeEach(ctx, specs)
	if len(failed) == 0 {
		return specs, described, nil
	}
	var able []pipeline.Spec
	var problems []error
	known, down := true, map[pipeline.ModelName]bool{}
	for _, spec := range specs {
		err := failed[spec.Name]
		if err == nil {
			able = append(able, spec)
			continue
		}
		n.deployed.fails(spec, err)
		known = known && lookup.Find(stored, spec.Name) >= 0
		if !down[spec.ModelName()] {
			problems = append(problems, err)
		}
		down[spec.ModelName()] = true
	}
	others := len(able) > 0 || slices.ContainsFunc(stored, func(p pipeline.Pipeline) bool {
		return p.Status == pipeline.Active && !down[p.Spec.ModelName()]
	})
	err := errors.Join(problems...)
	if ctx.Err() != nil || !others && (!known || problem.Of(err) == problem.Usage) {
		return nil, nil, err
	}
	n.o.Log.ErrorContext(ctx, "an embedder cannot be had: its pipelines wait", "error", err,
		"hints", problem.Hints(err))
	return able, described, nil
}

// workable looks for a pipeline whose embedder is not the one its vectors were made with, or cannot be had. A sidecar
// lets such a pipeline wait until somebody acts; one that is to catch up and end would wait for ever.
func (n *Database) workable(ctx context.Context, pool *pgxpool.Pool) error {
	pipelines, err := n.loader.Load(ctx, pool, n.config().Slot.Name)
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
