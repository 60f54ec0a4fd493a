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
	// settleEvery is how often the set-up is compared with the configuration.
	settleEvery = 10 * time.Second
	// tryEvery is the retry interval for pipelines that could not be set up.
	tryEvery = 30 * time.Second
	// longestPlan is how long pipelines may be planned: later requests wait, and the code of a table's owner may not end.
	longestPlan = 2 * time.Minute
)

// keepSettled keeps the set-up in line with the configured and the declared pipelines. It carries out requests, retries
// failed set-ups, and sets up pipelines in new schemas.
func (n *Database) keepSettled(ctx context.Context, r *run) {
	for due, known := true, false; ctx.Err() == nil; due = n.pause(ctx) {
		known = known || n.mayTake(ctx, r)
		acted, err := n.settled(ctx, r, due)
		if err != nil && ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "could not compare pipelines with the configuration", "error", err)
			sleep.For(ctx, time.Second) // transient errors need time to pass
		}
		if acted {
			r.reload()
		}
	}
}

// pause waits until a comparison is due or a request comes. due: a comparison is due.
func (n *Database) pause(ctx context.Context) (due bool) {
	select {
	case <-ctx.Done():
		return false
	case <-n.called:
		return false
	case <-time.After(sleep.Between(settleEvery*9/10, settleEvery*11/10)):
		return true
	}
}

// settled carries out requests, follows the declared pipelines and sets up what is due.
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
			return true, err // the request stays taken and is started again
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

// carryOut applies the pipelines now declared in the database, with a request for one: all of it, or nothing. It does
// not read the configuration file again.
func (n *Database) carryOut(ctx context.Context, r *run, a *asked) error {
	var d *draft
	err := database.Limited(ctx, longestPlan, func(ctx context.Context) (err error) {
		d, err = n.draftOf(ctx, r, n.config().Base(), n.plugins, a, false)
		return err
	})
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
	if err != nil { // go back to what is declared
		n.deployed.marks(unknownMark)
	}
	return err
}

// planned reports what a request for a pipeline would change.
func (n *Database) planned(ctx context.Context, r *run, a *asked) (control.Configured, error) {
	var d *draft
	err := database.Limited(ctx, longestPlan, func(ctx context.Context) (err error) {
		d, err = n.draftOf(ctx, r, n.config().Base(), n.plugins, a, false)
		if err == nil && !d.unchanged() {
			d.told.Costs, d.told.Warnings = n.costs(ctx, r, d)
		}
		return err
	})
	d.told.State = control.Planned
	return n.answer(d, err), err
}

// unknownMark matches no list of declared pipelines.
const unknownMark = "?"

// tellDeclared logs the result of applying declared pipelines. It logs a repeated failure once.
func (n *Database) tellDeclared(ctx context.Context, d *draft, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		n.deployed.marks(d.mark)
		n.deployed.untaken = ""
		n.o.Log.InfoContext(ctx, "applied pipelines declared by SQL and HTTP", "changed", d.told.Changed,
			"warnings", d.told.Warnings)
	} else if words := err.Error(); words != n.deployed.untaken {
		n.deployed.untaken = words
		n.o.Log.ErrorContext(ctx, "could not apply pipelines declared by SQL and HTTP", "error", err,
			"hints", problem.Hints(err))
	}
}

// mayTake finds out whether this process may carry out requests for pipelines, and publishes that. It returns false if
// the query failed.
func (n *Database) mayTake(ctx context.Context, r *run) (known bool) {
	if r.o.NoInit || r.o.Role == Stream {
		return true
	}
	var may bool
	if err := r.p.owner().QueryRow(ctx,
		"SELECT has_function_privilege('embedsidecar.next_request(name)', 'EXECUTE')").Scan(&may); err != nil {
		if ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "cannot carry out requests for pipelines yet", "error", err)
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

// declared adds the pipelines declared in the database to the configuration, except those that do not fit. asked:
// requests for others are pending.
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
		n.o.Log.ErrorContext(ctx, "a pipeline declared by SQL or HTTP conflicts with the configuration, which takes "+
			"precedence", "pipeline", name, "error", why)
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

// mended clears the problems that another process has fixed. Processes that set up nothing call it.
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

// due returns the pipelines to compare with what is set up: those whose retry is due, those that another sidecar
// changed, those whose newer definition no sidecar has any more, and those whose table name now means another table.
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
