package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// run is what works while the program runs, and what a change of the configuration reaches.
type run struct {
	p       *pools
	o       RunOptions
	service *admin.Service
	again   chan struct{} // the sidecar is to begin again, with what is configured now
	quiet   chan *resting // the sidecar is to end for a while

	mu      sync.Mutex
	sidecar *sidecar.Sidecar // nil: there is none now
	leaving []func() error   // ends embedders that nothing names any more, when the sidecar that may use them has ended
}

func (r *run) follows(s *sidecar.Sidecar) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sidecar = s
}

// reload has the sidecar look at its pipelines, which the next one does anyway.
func (r *run) reload() {
	r.mu.Lock()
	s := r.sidecar
	r.mu.Unlock()
	if s == nil {
		sleep.Wake(r.again)
		return
	}
	s.Reload()
}

// leaves notes what ends embedders.
func (r *run) leaves(end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = append(r.leaving, end)
}

// leave ends the embedders that nothing names any more.
func (r *run) leave() error {
	r.mu.Lock()
	list := r.leaving
	r.leaving = nil
	r.mu.Unlock()
	return errors.Join(lists.Map(list, func(end func() error) error { return end() })...)
}

// work runs sidecars, one after the other: a new one when what they are started with is configured otherwise.
func (n *Database) work(ctx context.Context, r *run) (err error) {
	defer func() { err = errors.Join(err, r.leave()) }()
	for {
		s := n.sidecar(r.p, r.o.Role)
		n.backend.Follow(s, r.p.queries)
		n.source.Follow(s, r.p.work, r.p.stream) //nolint:contextcheck // what scrapes ask for ends with the listener
		r.follows(s)
		again, err := n.workOnce(ctx, s, r)
		if err != nil || !again {
			return classified(err)
		}
		if err := r.leave(); err != nil {
			n.o.Log.WarnContext(ctx, "a plugin did not end in order", "error", err)
		}
		n.o.Log.InfoContext(ctx, "the sidecar begins again, as it is configured now")
	}
}

// workOnce runs one sidecar until it ends or is to begin again. It returns a *resting if that is not now.
func (n *Database) workOnce(ctx context.Context, s *sidecar.Sidecar, r *run) (bool, error) {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(working) }()
	select {
	case err := <-ended:
		return false, err
	case <-r.again:
		cancel()
		return ctx.Err() == nil, <-ended
	case rest := <-r.quiet:
		s.LeaveQuiet(time.Until(rest.until), rest)
		r.follows(nil)
		cancel()
		if err := <-ended; err != nil || ctx.Err() != nil {
			return false, err
		}
		return false, rest
	}
}

// Plan tells what the configuration would change as it is written down now.
func (n *Database) Plan(ctx context.Context) (control.Configured, error) {
	r := n.running.Load()
	if r == nil || n.o.Reread == nil {
		return control.Configured{}, errStarting()
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	d, err := n.draft(ctx, r)
	if err == nil && !d.unchanged() {
		d.told.Costs, d.told.Warnings = n.costs(ctx, r, d)
	}
	if d.plugins != nil {
		err = errors.Join(err, d.plugins.Leave(n.plugins))
	}
	d.told.State = control.Planned
	return n.answer(d, err), ctx.Err()
}

func errStarting() error {
	return problem.New(problem.Conflict, errors.New("the program starts: it has no pipelines yet"), "ask again in a moment")
}

// answer completes what is told of a draft.
func (n *Database) answer(d *draft, err error) control.Configured {
	told := d.told
	switch {
	case err != nil:
		told.State, told.Reason, told.Hints = control.Refused, n.o.Redact(database.Words(err)), problem.Hints(err)
		told.Passing = passing(err)
	case d.unchanged():
		told.State = control.Unchanged
	}
	return told.Filled()
}

// passing reports whether something failed because the server is away: the same may succeed later. For a lock it was
// waited long enough, and what takes too long would again.
func passing(err error) bool {
	return problem.Of(err) == problem.Connect ||
		database.IsTransient(err) && !database.LockedOut(err) && !errors.Is(err, context.DeadlineExceeded)
}

// Configure takes over the configuration as it is written down now, for somebody, whose name goes into the audit with
// the action: all of it, or nothing, where something stands in the way.
func (n *Database) Configure(ctx context.Context, action, by string) control.Configured {
	r := n.running.Load()
	if r == nil || n.o.Reread == nil {
		return n.answer(&draft{told: control.Configured{Instance: n.config().Instance}}, errStarting())
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	d, err := n.draft(ctx, r)
	if err == nil && !d.unchanged() {
		err = n.take(ctx, r, d)
	} else if d.plugins != nil {
		err = errors.Join(err, d.plugins.Leave(n.plugins))
	}
	if ctx.Err() != nil {
		return n.answer(d, context.Cause(ctx))
	}
	d.told.State = control.Taken
	told := n.answer(d, err)
	n.tellConfigured(ctx, r, action, by, told, err)
	return told
}

// tellConfigured tells the log, the audit and anyone who looks what became of a configuration.
func (n *Database) tellConfigured(ctx context.Context, r *run, action, by string, told control.Configured, err error) {
	dep := &n.deployed
	dep.mu.Lock()
	before := dep.refused
	same := before != nil && err != nil && before.Error() == err.Error() ||
		before == nil && err == nil && told.State == control.Unchanged && slices.Equal(dep.restart, told.NeedsRestart)
	dep.refused = err
	if err == nil {
		dep.restart = told.NeedsRestart
	}
	dep.mu.Unlock()
	if same {
		return
	}
	n.source.Configured(told)
	n.declare(ctx, r.p.work)
	if err != nil {
		n.o.Log.ErrorContext(ctx, "configuration refused: the one before stays in force", "by", by, "file", told.File,
			"error", err, "hints", told.Hints)
	} else {
		n.o.Log.InfoContext(ctx, "configuration taken over", "by", by, "file", told.File, "changed", told.Changed,
			"needs_restart", told.NeedsRestart, "removed", told.Removed, "warnings", told.Warnings)
	}
	if err := note(ctx, r.p.work, action, "", by, told, err); err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "the audit does not tell of the configuration", "error", err)
	}
}

// take has a draft take the place of the configuration in force: what is new is set up first, and what is gone is taken
// away last.
func (n *Database) take(ctx context.Context, r *run, d *draft) error {
	before, leave := n.config(), d.leave
	if leave == nil {
		leave = func() error { return nil }
	}
	if d.plugins != nil {
		leave = n.plugins.Become(d.plugins)
	}
	n.use(r, d.cfg)
	n.deployed.configure(d.specs)
	n.deployed.mu.Lock()
	n.deployed.taken, n.deployed.mark = true, d.mark
	n.deployed.mu.Unlock()
	n.declare(ctx, r.p.work)
	var err error
	if r.o.NoInit || r.o.Role == Stream {
		err = n.accept(ctx, r.p, r.o, d.specs, d.ours)
	} else {
		err = n.setUp(ctx, r.p, d.specs, d.ours, true)
	}
	if err != nil {
		return errors.Join(err, n.restore(ctx, r, before, d.plugins == nil))
	}
	r.leaves(leave)
	n.removeAll(ctx, r, &d.told)
	if config.OnlyPipelines(d.told.Changed) {
		r.reload()
	} else {
		sleep.Wake(r.again) // it is about to
	}
	sleep.Wake(n.besides)
	return nil
}

// use has all parts work by a configuration.
func (n *Database) use(r *run, c *config.Config) {
	n.cfg.Store(c)
	n.backend.Use(c)
	r.service.Use(c)
}

// restore goes back to the configuration of before, but for embedders that are shared.
func (n *Database) restore(ctx context.Context, r *run, before *config.Config, shared bool) error {
	n.use(r, before)
	leave := func() error { return nil }
	if !shared {
		leave = n.plugins.Become(n.plugins.Next(n.embedders()))
	}
	ours, err := n.loader.Load(ctx, r.p.work, before.Slot.Name)
	if err == nil {
		n.deployed.configure(lookup.Configured(before, ours))
	}
	return errors.Join(err, leave())
}

// removeAll takes pipelines away; their vectors stay. One that cannot be taken away works on: the configuration is in
// force without it.
func (n *Database) removeAll(ctx context.Context, r *run, told *control.Configured) {
	var removed []string
	for _, name := range told.Removed {
		_, _, err := dismiss(ctx, n.o.Log, r.p.owner(), name, false)
		if err == nil {
			removed = append(removed, name)
			continue
		}
		n.o.Log.ErrorContext(ctx, "a pipeline that is configured no more could not be removed", "pipeline", name, "error", err,
			"hints", problem.Hints(err))
		told.Warnings = append(told.Warnings, n.o.Redact(database.Words(err)), Unconfigured(name))
	}
	told.Removed = removed
}

// costs estimates what the pipelines of a draft take that are new.
func (n *Database) costs(ctx context.Context, r *run, d *draft) (costs []control.Cost, warnings []string) {
	warnings = d.told.Warnings
	for _, spec := range d.specs {
		at := lookup.Find(d.ours, spec.Name)
		about, described := d.described[spec.Name]
		name := spec.Name
		next, changes := d.next[name]
		if !described || at >= 0 && !changes && SameTexts(spec, d.ours[at].Spec) {
			continue // what another rule of what counts costs, a warning says
		}
		if changes {
			spec = next
		}
		e, err := estimated(ctx, r.p.work, d.by, spec, about, d.cfg.PriceOf(spec.Model))
		if err != nil {
			warnings = append(warnings, n.o.Redact(database.Words(err)))
			continue
		}
		e.Pipeline = name
		costs = append(costs, costOf(&e))
	}
	return costs, warnings
}
