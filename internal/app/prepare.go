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

// upgraded upgrades a schema of an older version, or waits until the schema's owner has done so. A run with Reached
// does not wait.
func (n *Database) upgraded(ctx context.Context, p *pools, o RunOptions) error {
	const pause, again = time.Second, time.Minute
	try := func(ctx context.Context) (setup.Report, error) {
		err := catalog.CheckVersion(ctx, p.work)
		old := older(err)
		if old == nil {
			if problem.Of(err) == problem.Connect {
				return setup.Report{}, err
			}
			return setup.Report{}, nil // other schema errors are reported where the schema is read
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
			n.o.Log.WarnContext(ctx, "waiting for the schema to be upgraded", "reason", err, "hints", problem.Hints(err))
			told = now
		}
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

// prepare sets up what is missing, unless NoInit or the role forbids that, and checks that there is work to do. A
// pipeline that fails does not stop the others. n.deployed has the state of each.
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
		var streams bool // a slot that exists must be read, even without pipelines
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
			class = problem.NotSetUp // another process sets them up, perhaps later
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
		if _, is := n.deployed.specs[ours[i].Name]; !is && ours[i].BesideID == 0 {
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
	if err == nil { // other sidecars must see the configuration before the set-up
		n.declare(ctx, p.work)
	}
	return n.setUp(ctx, p, specs, ours, true)
}

// accept takes the pipelines as they are set up. Processes that set up nothing call it.
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

// notSetUp notes which pipelines are not set up, and returns the first one's error. Processes that set up nothing call
// it.
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
		first = cmp.Or(first, err)
	}
	return first
}

// setUp sets up what the pipelines lack. It leaves out those that fail, and returns an error if none is left. fresh:
// the configuration is new.
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

// setUpNamed is one try of setUp. It fails if schemas swap their names meanwhile.
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
	if so.Pool == p.work { // the same role
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

// initialize sets up pipelines. It leaves out those that block the others; failed is their error.
func (n *Database) initialize(ctx context.Context, so setup.Options, specs []pipeline.Spec, ours []pipeline.Pipeline,
) (failed, err error) {
	for {
		done, err := Initialize(ctx, n.config(), n.o.Log, so)
		if len(specs) == 0 || failed != nil || n.deployed.settled {
			done.Others = nil // without configured pipelines all are meant; otherwise they were reported before
		}
		n.o.Setup(done)
		if err == nil {
			n.deployed.keeps(so.Specs, done.Kept)
			return failed, n.changeModels(ctx, so, done.Changes)
		}
		sick := refusal.Culprits(err)
		rest := slices.DeleteFunc(slices.Clone(so.Specs), func(s pipeline.Spec) bool { return sick[s.Name] != nil })
		failed = cmp.Or(failed, err) // the first error names all obstacles
		if ctx.Err() != nil || len(rest) == len(so.Specs) || !n.othersWork(rest, specs, ours, sick) {
			return nil, failed
		}
		for _, spec := range so.Specs {
			n.deployed.fails(spec, sick[spec.Name])
		}
		so.Specs = rest
	}
}

// tellWaits logs that pipelines cannot work as configured, once for each reason.
func (n *Database) tellWaits(ctx context.Context, err error) {
	before := n.deployed.failed
	n.deployed.failed = err
	if err == nil || before != nil && before.Error() == err.Error() {
		return
	}
	n.o.Log.ErrorContext(ctx, "could not set up a pipeline: retrying; the others go on",
		"error", err, "hints", problem.Hints(err))
}

// othersWork reports whether a pipeline can work in spite of the sick ones: one that can be set up, one that is set up,
// or a sick one that is set up as configured.
func (n *Database) othersWork(rest, specs []pipeline.Spec, ours []pipeline.Pipeline, sick map[string]error) bool {
	return len(rest) > 0 || slices.ContainsFunc(ours, func(p pipeline.Pipeline) bool {
		return p.Status == pipeline.Active && (sick[p.Name] == nil || slices.ContainsFunc(specs,
			func(s pipeline.Spec) bool { return s.Name == p.Name && kept(s, p.Spec) == "" }))
	})
}

// warn passes a warning on, unless it is empty.
func (n *Database) warn(what string) {
	if what != "" {
		n.o.Warn(what)
	}
}

// describe asks the embedders of the configured pipelines for their descriptions. If an embedder is unavailable, its
// pipelines are left out and set up later. That is an error if no other pipeline can work and either one of them is not
// set up yet or a user must fix the embedder.
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
	n.o.Log.ErrorContext(ctx, "an embedder is unavailable: its pipelines wait", "error", err,
		"hints", problem.Hints(err))
	return able, described, nil
}

// workable looks for a pipeline whose embedder is unavailable, or is not the one that made its vectors. A sidecar lets
// such a pipeline wait for the user. A run that ends by itself would wait forever.
func (n *Database) workable(ctx context.Context, pool *pgxpool.Pool) error {
	pipelines, err := n.loader.Load(ctx, pool, n.config().Slot.Name)
	if err != nil {
		return err
	}
	for i := range pipelines {
		if !pipelines[i].Enabled || pipelines[i].Status != pipeline.Active {
			continue // reported at the end, not waited for
		}
		if _, err := n.plugins.Matching(ctx, &pipelines[i]); err != nil && ctx.Err() == nil &&
			problem.Of(err) == problem.Usage {
			return err
		}
	}
	return ctx.Err()
}
