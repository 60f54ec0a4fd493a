package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// errNoSchema is the error if no schema has a table to embed.
var errNoSchema = errors.New("no matching schema has the table of a pipeline")

// beginPrepared calls prepare, and repeats that until there is a schema to work in.
func (n *Database) beginPrepared(ctx context.Context, p *pools, service *admin.Service, once bool,
	prepare func(ctx context.Context) error,
) error {
	for told := false; ; told = true {
		if err := n.spreadOut(ctx, p, service); err != nil {
			return err
		}
		err := prepare(ctx)
		if once || !errors.Is(err, errNoSchema) {
			return err
		}
		n.source.Wait(err)
		if n.started(); !told {
			n.o.Working(ctx)
			n.o.Log.WarnContext(ctx, "waiting for a schema to work in", "reason", err, "hints", problem.Hints(err))
		}
		if !sleep.For(ctx, lookEvery) {
			return ctx.Err()
		}
	}
}

// spreadOut updates the configuration with the schemas that exist now.
func (n *Database) spreadOut(ctx context.Context, p *pools, service *admin.Service) error {
	c, left, err := lookup.InSchemas(ctx, p.work, n.config())
	if err != nil || c == n.config() {
		return err
	}
	n.cfg.Store(c)
	n.backend.Use(c)
	service.Use(c)
	n.tellLeft(ctx, left)
	return nil
}

// tellLeft logs, once, which matching schemas or tables are left out.
func (n *Database) tellLeft(ctx context.Context, left config.Spread) {
	if words := leftWords(left); words != n.deployed.passed {
		if n.deployed.passed = words; words != "" {
			n.o.Log.WarnContext(ctx, "some matching schemas or tables are left out", "reason", words)
		}
	}
}

// leftWords says which matching schemas or tables are left out, and which patterns match none; "": none.
func leftWords(left config.Spread) string {
	const most = 20
	var parts []string
	if len(left.Unmet) > 0 {
		parts = append(parts, "no schema matches "+strings.Join(left.Unmet, ", "))
	}
	if n := len(left.Absent); n > 0 {
		list := strings.Join(left.Absent[:min(n, most)], ", ")
		if n > most {
			list += fmt.Sprintf(" and %d more", n-most)
		}
		parts = append(parts, "there is no table "+list)
	}
	if left.Beyond > 0 {
		parts = append(parts, fmt.Sprintf("%d schemas are beyond tenants.schemas", left.Beyond))
	}
	return strings.Join(parts, "; ")
}

// followSchemas follows new and dropped schemas while the program runs, and returns the new pipelines.
func (n *Database) followSchemas(ctx context.Context, r *run) (fresh []pipeline.Spec, err error) {
	before := n.config()
	if err := n.spreadOut(ctx, r.p, r.service); err != nil || n.config() == before {
		return nil, err
	}
	ours, err := n.loader.Load(ctx, r.p.work, before.Slot.Name)
	if err != nil {
		return nil, err
	}
	specs := lookup.Configured(n.config(), ours)
	d := &n.deployed
	d.mu.Lock()
	now := map[string]pipeline.Spec{}
	for _, spec := range specs {
		if _, known := d.specs[spec.Name]; !known {
			fresh = append(fresh, spec)
		}
		now[spec.Name] = spec
	}
	for name := range d.specs {
		if _, still := now[name]; !still {
			delete(d.problems, name)
			delete(d.kept, name)
		}
	}
	d.become(now)
	d.mu.Unlock()
	n.declare(ctx, r.p.work)
	return fresh, nil
}

// exchangeNames renames pipelines in schemas that have swapped names. That is so if another pipeline still has the new
// name of one, or is to get its old name.
func exchangeNames(ctx context.Context, c *config.Config, pool *pgxpool.Pool, ours []pipeline.Pipeline) (
	names map[string]string, err error,
) {
	names = map[string]string{} // new names by old names
	for _, spec := range c.Pipelines {
		at := slices.IndexFunc(ours, func(p pipeline.Pipeline) bool {
			return p.BesideID == 0 && lookup.SameEnds(p.Spec, spec)
		})
		if c.InSchema(spec.Name) < 0 || at < 0 || ours[at].Name == spec.Name {
			continue
		}
		if lookup.Find(ours, spec.Name) >= 0 || c.Pipeline(ours[at].Name) != nil {
			names[ours[at].Name] = spec.Name
		}
	}
	for _, name := range slices.Collect(maps.Values(names)) {
		at := lookup.Find(ours, name)
		if _, leaves := names[name]; !leaves && at >= 0 { // its schema no longer matches
			names[name] = config.LongName(ours[at].Spec)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	all := maps.Clone(names)
	for _, p := range ours { // names of other generations begin with that of the serving one
		if at := slices.IndexFunc(ours, func(q pipeline.Pipeline) bool { return q.ID == p.BesideID }); at >= 0 {
			if rest, is := strings.CutPrefix(p.Name, ours[at].Name); is && names[ours[at].Name] != "" {
				all[p.Name] = names[ours[at].Name] + rest
			}
		}
	}
	ids, to := []int32{}, []string{}
	for before, name := range all {
		ids, to = append(ids, ours[lookup.Find(ours, before)].ID), append(to, name)
	}
	return names, database.Transact(ctx, pool, func(tx pgx.Tx) error {
		for _, aside := range []bool{true, false} { // names are unique, so move them aside first
			if _, err := tx.Exec(ctx, sqlfiles.Query("exchange_names"), pgx.StrictNamedArgs{
				"ids": ids, "names": to, "aside": aside,
			}); err != nil {
				return fmt.Errorf("exchange the names of pipelines: %w", err)
			}
		}
		return nil
	})
}

// removeAgain is the retry interval for pipelines that could not be removed.
const removeAgain = 10 * time.Minute

// takeAwayLeaving removes pipelines that are no longer configured: those whose table is gone, and those of this file
// that no sidecar has had for followAfter. Their vectors stay.
func (n *Database) takeAwayLeaving(ctx context.Context, r *run) (acted bool, err error) {
	d, c := &n.deployed, n.config()
	d.mu.Lock()
	names, me := slices.Collect(maps.Keys(d.leaving)), d.row
	d.mu.Unlock()
	if len(names) == 0 || r.o.NoInit || r.o.Role == Stream || !c.Enabled {
		return false, nil
	}
	type leaving struct {
		Name, Origin string
		Held, Gone   bool
	}
	list, err := database.Collect(ctx, r.p.work, "leaving_pipelines", pgx.RowToStructByName[leaving],
		pgx.StrictNamedArgs{"slot": c.Slot.Name, "names": names, "me": me})
	if err != nil {
		return false, err
	}
	told := control.Configured{Instance: c.Instance, File: fileOf(c), State: control.Taken}
	now, stay := time.Now(), map[string]time.Time{}
	d.mu.Lock()
	for _, l := range list {
		since := d.leaving[l.Name]
		ofFile := l.Origin != "" && l.Origin == fileOf(c) && c.Origin("pipelines") == "default" // not set by flags
		switch waited := now.Sub(since); {
		case l.Gone && waited >= settleEvery/2 || ofFile && !l.Held && waited >= followAfter:
			told.Removed = append(told.Removed, l.Name)
			stay[l.Name] = now.Add(removeAgain) // if its removal fails
		case l.Held:
			stay[l.Name] = now
		case l.Gone || ofFile:
			stay[l.Name] = since
		}
	}
	d.leaving = stay
	d.mu.Unlock()
	if len(told.Removed) == 0 {
		return false, nil
	}
	n.removeAll(ctx, r, &told)
	d.mu.Lock()
	for _, name := range told.Removed {
		delete(d.leaving, name)
	}
	d.mu.Unlock()
	if len(told.Removed) > 0 {
		n.o.Log.InfoContext(ctx, "removed pipelines that are no longer configured", "removed", told.Removed)
		if err := note(ctx, r.p.work, "reload", "", "the sidecar "+c.Instance, told, nil); err != nil && ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "could not write the configuration into the audit", "error", err)
		}
	}
	return len(told.Removed) > 0, nil
}
