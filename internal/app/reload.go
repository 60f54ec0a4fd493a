package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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

// run is the running work of a database, which a new configuration changes.
type run struct {
	p       *pools
	o       RunOptions
	service *admin.Service
	again   chan struct{} // the sidecar must restart with the new configuration
	quiet   chan *resting // the sidecar must stop for a rest

	sidecar atomic.Pointer[sidecar.Sidecar] // nil: there is none now

	mu      sync.Mutex
	leaving []func() error // closes embedders that are no longer configured, once the sidecar has ended
}

// reload makes the sidecar read its pipelines again. The next sidecar does that anyway.
func (r *run) reload() {
	if s := r.sidecar.Load(); s != nil {
		s.Reload()
		return
	}
	sleep.Wake(r.again)
}

// leaves stores a function that closes embedders.
func (r *run) leaves(end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = append(r.leaving, end)
}

// leave closes the embedders that are no longer configured.
func (r *run) leave() error {
	r.mu.Lock()
	list := r.leaving
	r.leaving = nil
	r.mu.Unlock()
	return errors.Join(lists.Map(list, func(end func() error) error { return end() })...)
}

// work runs sidecars, one after another. It starts a new one when settings of the current one change.
func (n *Database) work(ctx context.Context, r *run) (err error) {
	defer func() { err = errors.Join(err, r.leave()) }()
	for {
		s := n.sidecar(r.p, r.o.Role)
		n.backend.Follow(s, r.p.queries)
		n.source.Follow(s, r.p.work, r.p.stream) //nolint:contextcheck // what scrapes ask for ends with the listener
		r.sidecar.Store(s)
		again, err := n.workOnce(ctx, s, r)
		if err != nil || !again {
			return classified(err)
		}
		if err := r.leave(); err != nil {
			n.o.Log.WarnContext(ctx, "a plugin did not stop cleanly", "error", err)
		}
		n.o.Log.InfoContext(ctx, "restarting the sidecar with the new configuration")
	}
}

// workOnce runs one sidecar until it ends or must restart. It returns a *resting if the database is to rest.
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
		r.sidecar.Store(nil)
		cancel()
		if err := <-ended; err != nil || ctx.Err() != nil {
			return false, err
		}
		return false, rest
	}
}

// Plan reads the configuration again and reports what it would change.
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
	return problem.New(problem.Conflict, errors.New("the program is starting: it has no pipelines yet"), "ask again in a moment")
}

// answer completes the report of a draft.
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

// passing reports whether something failed because the server is away, so that it may succeed later. Lock timeouts and
// deadlines do not count: their wait was long enough.
func passing(err error) bool {
	return problem.Of(err) == problem.Connect ||
		database.IsTransient(err) && !database.LockedOut(err) && !errors.Is(err, context.DeadlineExceeded)
}

// Configure reads the configuration again and applies all of it, or nothing if something prevents that. action and by
// go into the audit.
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

// tellConfigured reports the result of a configuration to the log, the audit and the status.
func (n *Database) tellConfigured(ctx context.Context, r *run, action, by string, told control.Configured, err error) {
	switch {
	case !n.noteConfigured(ctx, r, action, by, told, err):
	case err != nil:
		n.o.Log.ErrorContext(ctx, "configuration refused: the one before stays in force", "by", by, "file", told.File,
			"error", err, "hints", told.Hints)
	default:
		n.o.Log.InfoContext(ctx, "configuration taken over", "by", by, "file", told.File, "changed", told.Changed,
			"needs_restart", told.NeedsRestart, "removed", told.Removed, "warnings", told.Warnings)
	}
}

// noteConfigured reports the result of a configuration to the audit and the status. It returns false if nothing has
// changed since the last result.
func (n *Database) noteConfigured(ctx context.Context, r *run, action, by string, told control.Configured, err error,
) bool {
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
		return false
	}
	n.source.Configured(told)
	n.declare(ctx, r.p.work)
	if err := note(ctx, r.p.work, action, "", by, told, err); err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "could not write the configuration into the audit", "error", err)
	}
	return true
}

// take puts a draft in force. It sets up new pipelines first, and removes dropped ones last.
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
		sleep.Wake(r.again)
	}
	sleep.Wake(n.besides)
	return nil
}

// use passes a configuration to all parts.
func (n *Database) use(r *run, c *config.Config) {
	n.cfg.Store(c)
	n.backend.Use(c)
	r.service.Use(c)
}

// restore goes back to the configuration before, except for shared embedders.
func (n *Database) restore(ctx context.Context, r *run, before *config.Config, shared bool) error {
	n.use(r, before)
	leave := func() error { return nil }
	if !shared {
		leave = n.plugins.Become(n.plugins.Next(n.options().Source))
	}
	ours, err := n.loader.Load(ctx, r.p.work, before.Slot.Name)
	if err == nil {
		n.deployed.configure(lookup.Configured(before, ours))
	}
	return errors.Join(err, leave())
}

// removeAll removes pipelines; their vectors stay. A pipeline that cannot be removed works on without being configured.
func (n *Database) removeAll(ctx context.Context, r *run, told *control.Configured) {
	var removed []string
	for _, name := range told.Removed {
		err := dismiss(ctx, n.o.Log, r.p.owner(), name, false, &control.Configured{})
		if err == nil {
			removed = append(removed, name)
			continue
		}
		n.o.Log.ErrorContext(ctx, "could not remove a pipeline that is no longer configured", "pipeline", name, "error", err,
			"hints", problem.Hints(err))
		told.Warnings = append(told.Warnings, n.o.Redact(database.Words(err)), Unconfigured(name))
	}
	told.Removed = removed
}

// costs estimates the new pipelines of a draft.
func (n *Database) costs(ctx context.Context, r *run, d *draft) (costs []control.Cost, warnings []string) {
	warnings = d.told.Warnings
	for _, spec := range d.specs {
		at := lookup.Find(d.ours, spec.Name)
		about, described := d.described[spec.Name]
		name := spec.Name
		next, changes := d.next[name]
		if !described || at >= 0 && !changes && SameTexts(spec, d.ours[at].Spec) {
			continue // warnings report what other changes cost
		}
		if changes {
			spec = next
		}
		e, err := Estimated(ctx, d.cfg, r.p.work, d.by, spec, about)
		if err != nil {
			warnings = append(warnings, n.o.Redact(database.Words(err)))
			continue
		}
		e.Pipeline = name
		costs = append(costs, costOf(&e))
	}
	return costs, warnings
}
