package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

const (
	// settleEvery is how often it is looked whether what is set up is what is configured.
	settleEvery = 10 * time.Second
	// tryEvery is how often those pipelines are tried again that could not be set up.
	tryEvery = 30 * time.Second
)

// keepSettled looks again and again whether pipelines are set up as they are configured and declared, carries out what
// is asked for, and sets up what could not be before, or what schemas have that are new.
func (n *Database) keepSettled(ctx context.Context, r *run) {
	for due, known := true, false; ctx.Err() == nil; due = n.pause(ctx) {
		known = known || n.mayTake(ctx, r)
		acted, err := n.settled(ctx, r, due)
		if err != nil && ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "pipelines are not compared with the configuration", "error", err)
			sleep.For(ctx, time.Second) // what passes takes its time
		}
		if acted {
			r.reload()
		}
	}
}

// pause waits until it is time to look again, or until it is called; due: the time has come.
func (n *Database) pause(ctx context.Context) (due bool) {
	late := time.NewTimer(sleep.Between(settleEvery*9/10, settleEvery*11/10))
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-n.called:
		return false
	case <-late.C:
		return true
	}
}

// settled carries out what is asked for, follows what is declared, and sets up what is due.
func (n *Database) settled(ctx context.Context, r *run, due bool) (acted bool, err error) {
	n.changing.Lock()
	defer n.changing.Unlock()
	now, err := n.look(ctx, r.p.work)
	if err != nil {
		return false, err
	}
	n.deployed.mu.Lock()
	differs := now.Declared != n.deployed.mark
	n.deployed.mu.Unlock()
	if differs {
		if err := n.carryOut(ctx, r, nil); err != nil {
			return true, err
		}
	}
	for now.Asked {
		a, err := takeRequest(ctx, r.p.owner(), n.config().Slot.Name)
		if a == nil || err != nil {
			return true, err
		}
		var plan control.Configured
		if a.DryRun {
			plan, err = n.planned(ctx, r, a)
		} else {
			err = n.carryOut(ctx, r, a)
		}
		if ctx.Err() != nil || passing(err) && a.Tries < mostTries {
			return true, err // it is taken, and begun again
		}
		if err := a.finish(ctx, n.options(), r.p.owner(), plan, err); err != nil {
			return true, err
		}
		if a.DryRun {
			continue
		}
		if err != nil {
			if err := n.carryOut(ctx, r, nil); err != nil {
				return true, err
			}
		}
		acted = true
	}
	if !due {
		return acted || differs, nil
	}
	mended, err := n.settle(ctx, r)
	left, failed := n.takeAwayLeaving(ctx, r)
	return acted || differs || mended || left, errors.Join(err, failed)
}

// carryOut takes over what is declared in the database now, with a request for a pipeline: all of it, or nothing. What
// is written down elsewhere is as it was.
func (n *Database) carryOut(ctx context.Context, r *run, a *asked) error {
	d, err := n.draftOf(ctx, r, n.config().Base(), n.plugins, a, false)
	if err == nil && !d.unchanged() {
		err = n.take(ctx, r, d)
	}
	if a == nil {
		n.tellDeclared(ctx, d, err)
		return nil
	}
	switch {
	case err != nil:
	case a.Action == "drop":
		err = dropNow(ctx, r.p.owner(), n.options(), a.Pipeline, false, &d.told)
	default:
		n.deployed.mu.Lock()
		if why, sick := n.deployed.problems[a.Pipeline]; sick {
			err = problem.New(problem.Failed, errors.New(why.Reason), why.Hints...)
		}
		n.deployed.mu.Unlock()
	}
	if err != nil { // back to what is declared
		n.deployed.marks(unknownMark)
	}
	return err
}

// planned tells what a request for a pipeline would change.
func (n *Database) planned(ctx context.Context, r *run, a *asked) (control.Configured, error) {
	d, err := n.draftOf(ctx, r, n.config().Base(), n.plugins, a, false)
	if err == nil && !d.unchanged() {
		d.told.Costs, d.told.Warnings = n.costs(ctx, r, d)
	}
	d.told.State = control.Planned
	return n.answer(d, err), err
}

// unknownMark is that of no list of declared pipelines.
const unknownMark = "?"

// tellDeclared logs what became of pipelines that others have declared, once where they cannot be taken over.
func (n *Database) tellDeclared(ctx context.Context, d *draft, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		n.deployed.marks(d.mark)
		n.deployed.untaken = ""
		n.o.Log.InfoContext(ctx, "pipelines that are declared by SQL and HTTP taken over", "changed", d.told.Changed,
			"warnings", d.told.Warnings)
	} else if words := err.Error(); words != n.deployed.untaken {
		n.deployed.untaken = words
		n.o.Log.ErrorContext(ctx, "pipelines that are declared by SQL and HTTP cannot be taken over now", "error", err,
			"hints", problem.Hints(err))
	}
}

// mayTake finds out whether requests for pipelines can be carried out here, and says so to those who ask. It returns
// false when that is to be asked again.
func (n *Database) mayTake(ctx context.Context, r *run) (known bool) {
	if r.o.NoInit || r.o.Role == Stream {
		return true
	}
	var may bool
	if err := r.p.owner().QueryRow(ctx,
		"SELECT has_function_privilege('embedsidecar.next_request(name)', 'EXECUTE')").Scan(&may); err != nil {
		if ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "requests for pipelines are not carried out yet", "error", err)
		}
		return false
	}
	n.deployed.mu.Lock()
	differs := may != n.deployed.takes
	n.deployed.takes = may
	n.deployed.mu.Unlock()
	if differs {
		n.declare(ctx, r.p.work)
	}
	return true
}

// declared takes the pipelines in that are declared in the database, but for those that do not fit. asked: requests
// for others wait.
func (n *Database) declared(ctx context.Context, pool *pgxpool.Pool) (asked bool, err error) {
	now, err := n.changed(ctx, pool)
	if err != nil {
		return false, err
	}
	list, err := readDeclared(ctx, pool, n.config().Slot.Name)
	if err != nil {
		return false, err
	}
	next, failed := n.config().Base().Declaring(list)
	if next, _, err = lookup.InSchemas(ctx, pool, next); err != nil {
		return false, err
	}
	for name, why := range failed {
		n.o.Log.ErrorContext(ctx, "a pipeline that is declared by SQL or HTTP does not fit the configuration, which goes "+
			"before it", "pipeline", name, "error", why)
	}
	n.deployed.marks(markOf(list))
	n.cfg.Store(next)
	n.backend.Use(next)
	return now.Asked, nil
}

// settle sets up what is due. acted: something may have changed.
func (n *Database) settle(ctx context.Context, r *run) (acted bool, err error) {
	p, o := r.p, r.o
	fresh, err := n.followSchemas(ctx, r)
	if err != nil {
		return false, err
	}
	due, err := n.due(ctx, p)
	for _, spec := range fresh {
		if !slices.ContainsFunc(due, func(s pipeline.Spec) bool { return s.Name == spec.Name }) {
			due = append(due, spec)
		}
	}
	if err != nil || len(due) == 0 {
		return false, err
	}
	ours, err := n.loader.Load(ctx, p.work, n.config().Slot.Name)
	if err != nil {
		return false, err
	}
	if o.NoInit || o.Role == Stream {
		if n.notSetUp(fresh, ours) != nil {
			n.declare(ctx, p.work)
		}
		return n.mended(ctx, p, due, ours), nil
	}
	err = n.setUp(ctx, p, due, ours, false)
	if err != nil {
		for _, spec := range due {
			n.deployed.fails(spec, err)
		}
		n.declare(ctx, p.work)
	}
	return true, err
}

// mended forgets what another has set up since, where this process sets nothing up.
func (n *Database) mended(ctx context.Context, p *pools, due []pipeline.Spec, ours []pipeline.Pipeline) (acted bool) {
	for _, spec := range due {
		if at := lookup.Find(ours, spec.Name); at >= 0 && kept(spec, ours[at].Spec) == "" {
			n.deployed.keeps([]pipeline.Spec{spec}, nil)
			acted = true
		}
	}
	if acted {
		n.declare(ctx, p.work)
	}
	return acted
}

// due returns the pipelines that are to be compared with what is set up: those that waited for long enough, those that
// another has changed, those whose newer definition no sidecar has any more, and those whose table has given its name
// to another.
func (n *Database) due(ctx context.Context, p *pools) (due []pipeline.Spec, err error) {
	d := &n.deployed
	d.mu.Lock()
	digests, tables := d.digests, d.tables
	d.mu.Unlock()
	if len(digests) == 0 {
		return nil, nil
	}
	list, err := database.Collect(ctx, p.work, "other_definitions", pgx.RowToStructByPos[otherwise],
		pgx.StrictNamedArgs{"slot": n.config().Slot.Name, "digests": digests, "tables": tables})
	if err != nil {
		return nil, err
	}
	isHeld := func(string, string) bool { return true }
	if len(list) > 0 {
		isHeld = n.holders(ctx, p.work, false)
	}
	sick := d.sick()
	retry := time.Since(d.tried) >= tryEvery
	if retry {
		d.tried = time.Now()
	}
	gone := slices.DeleteFunc(slices.Clone(list), func(o otherwise) bool { return o.Version > 0 })
	away := d.takenAway(gone)
	replaced, again := d.replaced(n.config(), list, func() bool {
		t, err := n.others(ctx, p.work)
		return err == nil && !t.unknown && len(t.running) == 0
	})
	due = append(due, again...)
	if away || replaced {
		n.declare(ctx, p.work)
	}
	for _, other := range list {
		if other.Version == 0 || !other.Differs || slices.ContainsFunc(due, func(s pipeline.Spec) bool {
			return s.Name == other.Name
		}) {
			continue
		}
		d.mu.Lock()
		version, left := d.kept[other.Name]
		d.kept[other.Name] = other.Version
		spec := d.specs[other.Name]
		d.mu.Unlock()
		if !left || version != other.Version || !isHeld(other.Name, other.Digest) {
			due = append(due, spec)
		}
	}
	for _, spec := range sick {
		differs := slices.ContainsFunc(list, func(o otherwise) bool { return o.Name == spec.Name })
		chosen := slices.ContainsFunc(due, func(s pipeline.Spec) bool { return s.Name == spec.Name })
		d.mu.Lock()
		left, away := d.problems[spec.Name].left, d.problems[spec.Name].away
		d.mu.Unlock()
		if !chosen && (left && !differs || !left && retry && !away) {
			due = append(due, spec)
		}
	}
	return due, nil
}
