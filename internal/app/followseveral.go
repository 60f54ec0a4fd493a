package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
)

// following is one of several running databases while the configuration changes.
type following struct {
	t   *tenant
	db  *Database
	r   *run
	d   *draft
	err error

	locked bool // db.changing is held
}

// hold locks a database against other changes. It gives up on a database that stays busy; the change is retried later.
func (f *following) hold(ctx context.Context) {
	const most = 10 * time.Second
	for until := time.Now().Add(most); !f.locked; {
		if f.locked = f.db.changing.TryLock(); f.locked {
			return
		}
		if time.Now().After(until) || !sleep.For(ctx, most/100) {
			f.err = problem.New(problem.Conflict, errors.New("it is being set up, or does not answer"))
			return
		}
	}
}

// configure reads the configuration again and applies it, or plans that, for each database separately. It is refused
// only if every database refuses it. A database that refuses it goes on as before. One that does not run now starts
// with it.
func (s *several) configure(ctx context.Context, action, by string, dry bool) control.Configured {
	s.changing.Lock()
	defer s.changing.Unlock()
	now := s.cfg.Load()
	told := control.Configured{Instance: now.Instance, File: fileOf(now), State: control.Unchanged}
	if s.n.o.Reread == nil {
		return told.Filled()
	}
	list := s.following()
	next, err := s.n.o.Reread()
	if err != nil {
		each(list, func(f *following) { f.d, f.err = f.db.newDraft(), err })
		s.note(ctx, list, action, by, dry)
		return s.answer(ctx, told, nil, err, dry)
	}
	told.Changed, told.NeedsRestart = now.Changes(next)
	cfg := next.Keeping(now)
	if at := slices.Index(told.NeedsRestart, "databases"); at >= 0 && next.Several() {
		told.NeedsRestart = slices.Delete(told.NeedsRestart, at, at+1)
		told.Changed, cfg.Databases = append(told.Changed, "databases"), next.Databases
	}
	source := s.n.o.Source
	source.Config = cfg
	plugins := s.n.plugins.Next(source)
	defer func() {
		for _, f := range list {
			if f.locked {
				f.db.changing.Unlock()
			}
		}
	}()
	each(list, func(f *following) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // a database that hangs must not delay the others
		defer cancel()
		f.d = f.db.newDraft()
		if f.hold(ctx); f.locked {
			own := cfg.For(f.t.DSN, f.t.Stream, f.db.config().Slot.Name)
			f.d, f.err = f.db.draftOf(ctx, f.r, own, plugins, nil, f.db.deployed.lacks())
		}
		if f.err == nil && dry {
			f.d.told.Costs, f.d.told.Warnings = f.db.costs(ctx, f.r, f.d)
		}
	})
	refused := func(f *following) bool { return f.err != nil }
	all := len(list) > 0 && !slices.ContainsFunc(list, func(f *following) bool { return f.err == nil })
	changes := len(told.Changed) > 0 || slices.ContainsFunc(list, func(f *following) bool { return !f.d.unchanged() })
	switch {
	case ctx.Err() != nil:
		return s.answer(ctx, told, list, errors.Join(context.Cause(ctx), plugins.Leave(s.n.plugins)), true)
	case all:
		s.note(ctx, list, action, by, dry)
		return s.answer(ctx, told, list, errors.Join(list[0].err, plugins.Leave(s.n.plugins)), dry)
	case !dry && changes:
		told.State = control.Taken
		s.take(ctx, cfg, plugins, list, action, by)
	default:
		if dry && changes {
			told.State = control.Planned
		}
		s.note(ctx, list, action, by, dry)
		err = plugins.Leave(s.n.plugins)
	}
	for _, f := range list {
		s.gather(&told, f)
	}
	if at := slices.IndexFunc(list, refused); at >= 0 && err == nil {
		told.State = control.Halfway
		err = fmt.Errorf("database %s keeps its configuration: %w", list[at].t.Name, list[at].err)
	}
	return s.answer(ctx, told, list, err, dry)
}

// note reports in each database what it says to a configuration that none of them takes. The log has it once for all.
func (s *several) note(ctx context.Context, list []*following, action, by string, dry bool) {
	if dry || ctx.Err() != nil {
		return
	}
	each(list, func(f *following) {
		ctx, cancel := context.WithTimeout(ctx, auditTimeout)
		defer cancel()
		f.db.noteConfigured(ctx, f.r, action, by, f.db.answer(f.d, f.err), f.err)
	})
}

// following returns the databases that run.
func (s *several) following() (list []*following) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names() {
		t := s.list[name]
		if db := t.shown.Load().db; db.running.Load() != nil {
			list = append(list, &following{t: t, db: db, r: db.running.Load()})
		}
	}
	return list
}

// each calls do for a few databases at a time.
func each(list []*following, do func(f *following)) {
	var all errgroup.Group
	all.SetLimit(startingAtOnce)
	for _, f := range list {
		all.Go(func() error { do(f); return nil })
	}
	_ = all.Wait()
}

// take puts a configuration in force. Embedders that it no longer names are closed when the last database has restarted
// without them.
func (s *several) take(ctx context.Context, cfg *config.Config, plugins *embedders.Pool, list []*following,
	action, by string,
) {
	end := s.n.plugins.Become(plugins)
	leave := sync.OnceValue(func() error {
		s.n.shared.keep(s.n.plugins.All())
		return end()
	})
	s.leaving = append(s.leaving, leave)
	s.cfg.Store(cfg)
	s.n.shared.use(cfg)
	s.n.inWork.Set(cfg.Limits.InWork)
	s.service.Use(cfg)
	var users atomic.Int64
	users.Store(int64(len(list)) + 1)
	left := func() error {
		if users.Add(-1) > 0 {
			return nil
		}
		return leave()
	}
	each(list, func(f *following) {
		if f.err == nil && !f.d.unchanged() {
			f.d.leave = left
			if f.err = f.db.take(ctx, f.r, f.d); f.err == nil {
				f.d.told.State = control.Taken
			}
		}
		if f.d.leave == nil || f.err != nil {
			f.r.leaves(left)
		}
		if f.locked {
			f.t.has.Store(cfg)
		}
		f.db.tellConfigured(ctx, f.r, action, by, f.db.answer(f.d, f.err), f.err)
	})
	if err := left(); err != nil {
		s.n.o.Log.WarnContext(ctx, "a plugin did not stop cleanly", "error", err)
	}
}

// leave closes the embedders that the databases no longer use.
func (s *several) leave(ctx context.Context) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, end := range s.leaving {
		if err := end(); err != nil {
			s.n.o.Log.WarnContext(ctx, "a plugin did not stop cleanly", "error", err)
		}
	}
}

// gather adds the result of one database to told.
func (s *several) gather(told *control.Configured, f *following) {
	of := func(list []string) []string {
		return lists.Map(list, func(what string) string { return f.t.Name + ": " + what })
	}
	d := &f.d.told
	told.Steps, told.Removed = append(told.Steps, of(d.Steps)...), append(told.Removed, of(d.Removed)...)
	told.Lost, told.Warnings = append(told.Lost, of(d.Lost)...), append(told.Warnings, of(d.Warnings)...)
	for _, cost := range d.Costs {
		cost.Pipeline, cost.Line = f.t.Name+": "+cost.Pipeline, f.t.Name+": "+cost.Line
		told.Costs = append(told.Costs, cost)
	}
	if f.err != nil {
		told.Warnings = append(told.Warnings, of([]string{"refused: " + s.n.o.Redact(database.Words(f.err))})...)
	}
}

// answer completes the result for all databases, and reports it in the log and the metrics.
func (s *several) answer(ctx context.Context, told control.Configured, list []*following, err error, dry bool,
) control.Configured {
	if err != nil {
		if told.State != control.Halfway {
			told.State = control.Refused
		}
		told.Reason, told.Hints = s.n.o.Redact(database.Words(err)), problem.Hints(err)
		told.Passing = passing(err) ||
			slices.ContainsFunc(list, func(f *following) bool { return f.err != nil && passing(f.err) })
	}
	told = told.Filled()
	if dry || ctx.Err() != nil {
		return told
	}
	log := s.n.o.Log.With("file", told.File)
	said := s.refused
	s.refused = strings.Join(append([]string{told.Reason}, told.Warnings...), "\n")
	switch {
	case told.Passing && said == s.refused: // logged before; it is retried while a server is away
	case err != nil && told.State == control.Refused:
		log.ErrorContext(ctx, "configuration refused: the one before stays in force", "error", err, "hints", told.Hints)
	case err != nil:
		log.ErrorContext(ctx, "some databases refuse the configuration: the one before stays in force there", "error", err,
			"warnings", told.Warnings)
	case told.State == control.Taken || len(told.NeedsRestart) > 0:
		log.InfoContext(ctx, "configuration taken over", "changed", strings.Join(told.Changed, ", "), "needs_restart",
			told.NeedsRestart, "removed", told.Removed)
	}
	s.n.none.Configured(told)
	return told
}
