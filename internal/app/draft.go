package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
)

// draft is a configuration that is to replace the one in force, with the findings about it. Making it changes nothing.
type draft struct {
	cfg       *config.Config  // settings that need a restart keep their values in force
	plugins   *embedders.Pool // replace those in use; nil: those stay
	leave     func() error    // closes embedders that databases share, once none uses them; nil: not shared
	by        *embedders.Pool // embedders of the configured pipelines
	specs     []pipeline.Spec
	next      map[string]pipeline.Spec // next generations to begin, by pipeline name
	described map[string]embed.Description
	ours      []pipeline.Pipeline // pipelines that are set up
	mark      string              // of the declared pipelines
	asked     string              // pipeline of the request; "": no request
	told      control.Configured
}

// unchanged reports whether the configuration equals the one in force.
func (d *draft) unchanged() bool { return len(d.told.Changed) == 0 }

func (n *Database) newDraft() *draft {
	return &draft{told: control.Configured{Instance: n.config().Instance, File: fileOf(n.config())}}
}

// draft reads the configuration again and collects every reason to refuse it. A pipeline that failed before and has not
// changed is no reason.
func (n *Database) draft(ctx context.Context, r *run) (d *draft, err error) {
	next, err := n.o.Reread()
	if err != nil {
		return n.newDraft(), err
	}
	source := n.options().Source
	source.Config = next.Keeping(n.config())
	plugins := n.plugins.Next(source)
	if d, err = n.draftOf(ctx, r, next, plugins, nil, n.deployed.lacks()); d.unchanged() {
		return d, errors.Join(err, plugins.Leave(n.plugins))
	}
	d.plugins = plugins
	return d, err
}

// draftOf makes the draft of a configuration with the pipelines declared in the database, and with a request for one.
// again: pipelines that were removed are set up again.
func (n *Database) draftOf(ctx context.Context, r *run, next *config.Config, plugins *embedders.Pool, a *asked,
	again bool,
) (d *draft, err error) {
	d = n.newDraft()
	list, err := readDeclared(ctx, r.p.work, n.config().Slot.Name)
	if err == nil && a != nil {
		list, err = a.in(list)
	}
	if err != nil {
		return d, err
	}
	d.mark = markOf(list)
	next, failed := next.Declaring(list)
	if d.told.Warnings, err = n.undeclarable(failed, a); err != nil {
		return d, err
	}
	if a != nil {
		d.asked = a.Pipeline
		if d.ours, err = n.loader.Load(ctx, r.p.work, n.config().Slot.Name); err != nil {
			return d, err
		}
		if err := a.allowed(ctx, r.p.owner(), next.Pipeline(a.Pipeline), d.ours); err != nil {
			return d, err
		}
	}
	var left config.Spread
	if next, left, err = lookup.InSchemas(ctx, r.p.work, next); err != nil {
		return d, err
	}
	d.told.Changed, d.told.NeedsRestart = n.config().Changes(next)
	if again && d.unchanged() {
		d.told.Changed = []string{"pipelines"}
	}
	if d.cfg = next.Keeping(n.config()); d.unchanged() {
		return d, nil
	}
	if len(d.cfg.Base().Pipelines) == 0 && len(n.config().Base().Pipelines) > 0 {
		return d, problem.New(problem.Usage, errors.New("the configuration no longer has a pipeline"),
			"embedsidecar uninstall PIPELINE removes one")
	}
	if d.ours, err = n.loader.Load(ctx, r.p.work, d.cfg.Slot.Name); err != nil {
		return d, err
	}
	d.by, d.specs = plugins, lookup.Configured(d.cfg, d.ours)
	described, lacks := plugins.DescribeEach(ctx, d.specs)
	d.described = described
	able, err := n.tolerated(d, d.specs, lacks)
	if err != nil || r.o.NoInit || r.o.Role == Stream {
		return d, err
	}
	if err := n.rehearse(ctx, r, d, able); err != nil {
		return d, err
	}
	if words := leftWords(left); words != "" {
		d.told.Warnings = append(d.told.Warnings, words)
	}
	if a != nil && a.Action == "drop" {
		would := &d.told
		if !a.DryRun { // carryOut removes it once the configuration without it is in force
			would = &control.Configured{}
		}
		return d, dropNow(ctx, r.p.owner(), n.options(), a.Pipeline, true, would)
	}
	return d, n.removals(ctx, r, d)
}

// undeclarable reports declared pipelines that do not fit the configuration. A pipeline that fitted the configuration
// in force, or that is requested now, is an error. The others are warnings.
func (n *Database) undeclarable(failed map[string]error, a *asked) (warnings []string, err error) {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		why := fmt.Errorf("pipeline %q, declared by SQL or HTTP: %w", name, failed[name])
		if n.config().IsDeclared(name) || a != nil && a.Pipeline == name {
			problems = append(problems, why)
			continue
		}
		warnings = append(warnings, why.Error())
	}
	if len(problems) == 0 {
		return warnings, nil
	}
	return warnings, problem.New(problem.Usage, errors.Join(problems...))
}

// tolerated returns the pipelines that have not failed. It returns an error if one failed that worked before, unless
// its table is locked, or that has a new configuration; in schemas, only if the same file entry has no other pipeline
// left. A declared pipeline that fails never stops the others.
func (n *Database) tolerated(d *draft, specs []pipeline.Spec, failed map[string]error,
) (able []pipeline.Spec, err error) {
	n.deployed.mu.Lock()
	defer n.deployed.mu.Unlock()
	var problems []error
	well := map[int]bool{} // file entries that have a working pipeline in a schema
	for _, spec := range specs {
		if failed[spec.Name] == nil {
			well[d.cfg.InSchema(spec.Name)] = true
		}
	}
	for _, spec := range specs {
		was, known := n.deployed.specs[spec.Name]
		_, sick := n.deployed.problems[spec.Name]
		if at := lookup.Find(d.ours, spec.Name); at >= 0 { // it may have failed after its set-up
			sick = sick || d.ours[at].Status != pipeline.Active && d.ours[at].Status != pipeline.Locked
		}
		sick = sick || d.cfg.IsDeclared(spec.Name) && spec.Name != d.asked || database.LockedOut(failed[spec.Name])
		same := known && sick && lookup.SameEnds(was, spec) && resolve.Digest(was) == resolve.Digest(spec)
		switch err := failed[spec.Name]; {
		case err == nil:
			able = append(able, spec)
		case !same && (d.cfg.InSchema(spec.Name) < 0 || !well[d.cfg.InSchema(spec.Name)]):
			problems = append(problems, err)
		}
	}
	return able, errors.Join(problems...)
}

// rehearse plans the set-up.
func (n *Database) rehearse(ctx context.Context, r *run, d *draft, able []pipeline.Spec) error {
	for {
		done, err := Initialize(ctx, d.cfg, n.o.Log, setup.Options{
			Pool: r.p.owner(), Specs: able, Descriptions: d.described, Starting: true, DryRun: true,
			Held: n.holders(ctx, r.p.work, true),
		})
		if err == nil && done.Refused != nil {
			err = done.Refused
		}
		sick := refusal.Culprits(err)
		if err != nil && len(sick) == 0 {
			return err
		}
		rest, failed := n.tolerated(d, able, sick)
		if failed != nil {
			return err // names everything that failed
		}
		if able = rest; len(sick) > 0 {
			continue
		}
		d.told.Warnings = append(d.told.Warnings, done.Warnings...)
		d.told.Steps = append(d.told.Steps, whatsOf(done.Steps)...)
		return n.rehearseChanges(ctx, r, d, done.Changes)
	}
}

// rehearseChanges plans the next generations of pipelines that are configured with a new model.
func (n *Database) rehearseChanges(ctx context.Context, r *run, d *draft, changes []resolve.ModelChange) error {
	o := n.options()
	o.Config = d.cfg
	for _, c := range changes {
		by := equipment{pool: r.p.owner(), owner: r.p.owner(), plugins: d.by}
		would, err := changeModel(ctx, o, by, ModelChange{ModelChange: c, DryRun: true})
		if err != nil {
			return err
		}
		if d.next == nil {
			d.next = map[string]pipeline.Spec{}
		}
		d.next[c.Pipeline] = would.Next.Spec
		d.told.Warnings = append(d.told.Warnings, would.Warnings...)
		d.told.Steps = append(d.told.Steps, whatsOf(would.Steps)...)
	}
	return nil
}

// removals plans the removal of pipelines that this configuration no longer has, unless another sidecar has them.
func (n *Database) removals(ctx context.Context, r *run, d *draft) error {
	n.deployed.mu.Lock()
	var gone []pipeline.Spec
	for name, was := range n.deployed.specs {
		if lookup.Find(d.ours, name) >= 0 && !slices.ContainsFunc(d.specs, func(s pipeline.Spec) bool {
			return s.Name == name || lookup.SameEnds(s, was)
		}) {
			gone = append(gone, was)
		}
	}
	n.deployed.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	theirs, err := n.others(ctx, r.p.work)
	if err != nil {
		return err
	}
	for _, spec := range gone {
		var origin string
		err := r.p.work.QueryRow(ctx, "SELECT origin FROM embedsidecar.pipeline WHERE name = $1", spec.Name).Scan(&origin)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look up pipeline %q: %w", spec.Name, err)
		}
		kept := theirs.unknown || origin != fileOf(d.cfg)
		for h := range theirs.running {
			kept = kept || h.pipeline == spec.Name
		}
		if kept {
			d.told.Warnings = append(d.told.Warnings, Unconfigured(spec.Name))
			continue
		}
		if err := dismiss(ctx, n.o.Log, r.p.owner(), spec.Name, true, &d.told); err != nil {
			return err
		}
	}
	return nil
}
