package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

const (
	// settleEvery is how often it is looked whether what is set up is what is configured.
	settleEvery = 10 * time.Second
	// tryEvery is how often those pipelines are tried again that could not be set up.
	tryEvery = 30 * time.Second
)

// otherwise is a pipeline that is set up otherwise than it is configured here.
type otherwise struct {
	Name    string
	Version int32
	Digest  string
}

// keepSettled looks again and again whether pipelines are set up as they are configured, and sets up what could not be
// before, or what schemas have that are new. The function it returns ends that.
func (n *Database) keepSettled(ctx context.Context, r *run) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	n.deployed.tried = time.Now()
	go func() {
		defer close(done)
		for sleep.For(ctx, settleEvery) {
			n.changing.Lock()
			n.redeclare(ctx, r.p.work)
			acted, err := n.settle(ctx, r)
			left, failed := n.takeAwayLeaving(ctx, r)
			acted, err = acted || left, errors.Join(err, failed)
			n.changing.Unlock()
			if err != nil && ctx.Err() == nil {
				n.o.Log.WarnContext(ctx, "pipelines are not compared with the configuration", "error", err)
			}
			if acted {
				r.reload()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
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
	ours, err := lookup.StoredBy(ctx, &n.loader, p.work, n.config().Slot.Name)
	if err != nil {
		return false, err
	}
	if o.NoInit || o.Role == Stream {
		if n.notSetUp(fresh, ours) != nil {
			n.declare(ctx, p.work)
		}
		return n.mended(ctx, p, due, ours), nil
	}
	err = n.setUp(ctx, p, o, due, ours, false)
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
// another has changed, and those whose newer definition no sidecar has any more.
func (n *Database) due(ctx context.Context, p *pools) (due []pipeline.Spec, err error) {
	d := &n.deployed
	d.mu.Lock()
	digests := d.digests()
	d.mu.Unlock()
	if len(digests) == 0 {
		return nil, nil
	}
	list, err := database.Collect(ctx, p.work, "other_definitions", pgx.RowToStructByPos[otherwise],
		pgx.StrictNamedArgs{"slot": n.config().Slot.Name, "digests": digests})
	if err != nil {
		return nil, err
	}
	isHeld := func(string, string) bool { return true }
	if len(list) > 0 {
		isHeld = n.holders(ctx, p.work, false)
	}
	sick := d.sick()
	again := time.Since(d.tried) >= tryEvery
	if again {
		d.tried = time.Now()
	}
	for _, other := range list {
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
		left := d.problems[spec.Name].left
		d.mu.Unlock()
		if !chosen && (left && !differs || !left && again) {
			due = append(due, spec)
		}
	}
	return due, nil
}
