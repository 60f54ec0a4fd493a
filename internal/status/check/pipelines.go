package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

// checkPipelines checks the configured and the installed pipelines.
func (c *checker) checkPipelines(ctx context.Context) {
	set := map[string]pipeline.Pipeline{}
	if c.installed {
		var err error
		all, l := c.o.Loaded, resolve.Loader{Once: true, Rows: c.o.Stored}
		if len(all) == 0 {
			all, err = l.Settled(ctx, c.o.Pool, c.o.Slot)
		}
		c.stored = l.Rows
		if err == nil {
			var now report.Status
			now, err = report.Options{CountUpTo: -1, Loaded: all, AtOnce: true}.Read(ctx, c.o.Pool)
			c.stands = now.Pipelines
		}
		if err != nil {
			c.failed("pipelines", err)
			return // the configuration cannot be compared with what is installed
		}
		for _, p := range all {
			set[p.Name] = p
		}
	}
	if err := database.RetryReadOnly(ctx, c.o.Pool, func(tx pgx.Tx) error {
		c.known = resolve.Known(ctx, tx, c.o.Specs)
		return nil
	}); err != nil {
		c.failed("pipelines", err)
	}
	c.readTogether(ctx, set)
	seen := map[string]bool{}
	for _, spec := range c.o.Specs {
		seen[spec.Name] = true
		seen[c.checkConfigured(ctx, spec, set)] = true
	}
	for _, p := range set {
		if seen[p.Name] {
			continue
		}
		name := fmt.Sprintf("pipeline %q", p.Name)
		if told := c.tellPipeline(name, &p); told || p.Status != pipeline.Active {
			if !told && !c.copied {
				c.add(name, Wrong, p.Detail)
			}
			continue
		}
		c.add(name, OK, c.describe(&p))
		c.checkTable(ctx, name, &p)
		c.checkIndexes(ctx, &p)
	}
	for i := range c.stands {
		if line := c.stands[i].CutLine(); line != "" {
			c.add(fmt.Sprintf("pipeline %q", c.stands[i].Name), Warn, line)
		}
	}
}

// readTogether reads the tables and indexes of the active pipelines in common statements. If one fails, they are read
// one by one.
func (c *checker) readTogether(ctx context.Context, set map[string]pipeline.Pipeline) {
	var list []*pipeline.Pipeline
	for _, p := range set {
		if p.Status == pipeline.Active {
			list = append(list, &p)
		}
	}
	_ = c.readTables(ctx, list...)
	if found, err := indexes.OfAll(ctx, c.o.Pool, list); err == nil {
		for i, p := range list {
			c.indexes[p.ID] = found[i]
		}
	}
}

// checkConfigured checks a configured pipeline as a starting sidecar would interpret it. It returns the name that it is
// installed under.
func (c *checker) checkConfigured(ctx context.Context, configured pipeline.Spec,
	set map[string]pipeline.Pipeline,
) (setUpAs string) {
	name := fmt.Sprintf("pipeline %q", configured.Name)
	t, err := c.take(ctx, configured)
	if err != nil {
		c.failed(name, err)
		return configured.Name
	}
	spec, d := t.Spec, t.Description
	stored, ok := set[spec.Name]
	vectors := catalog.Vectors{Dims: d.Dims, Sparse: d.Sparse, Either: t.Either, Known: c.known, Stored: ok}
	p, warnings, err := resolve.Resolve(ctx, c.o.Pool, spec, vectors)
	if ok && stored.Status != pipeline.Active && stored.Status != pipeline.Locked && !c.copied &&
		resolve.SameRecipe(spec, stored.Spec) && spec.Filter == stored.Filter {
		if !c.tellPipeline(name, &stored) {
			c.add(name, Wrong, stored.Detail)
		}
		return spec.Name
	}
	if err != nil {
		c.failed(name, nowCalled(err, spec.Name, set))
		return spec.Name
	}
	for _, w := range warnings {
		c.add(name, Warn, w)
	}
	told := ok && c.tellPipeline(name, &stored)
	switch {
	case !ok:
		c.add(name, Wrong, "it is configured but not set up", c.toSetUp(&p, &t))
		return spec.Name
	case stored.Status != pipeline.Active && c.copied: // this is reported once for all pipelines
	case stored.Status != pipeline.Active, stored.OID != p.OID:
		if !told {
			c.add(name, Wrong, cmp.Or(stored.Detail, fmt.Sprintf(
				"its table is now called %s, and %s is now another table, whose rows get no vectors", stored.Source(), p.Source())))
		}
	case d.Fingerprint != "" && d.Fingerprint != stored.Fingerprint:
		c.add(name, Wrong, "its vectors were made by another model than the configured one",
			"embedsidecar init says what can be done")
	case t.Differs.Was != "" && !t.Kept:
		c.add(name, Warn, "its configuration differs from its set-up: "+t.Differs.Was,
			"embedsidecar init, or the next run, applies this configuration")
	case !told:
		c.add(name, OK, c.describe(&p))
	}
	c.checkTable(ctx, name, &p)
	if stored.Status == pipeline.Active {
		c.checkIndexes(ctx, &stored)
	}
	return spec.Name
}

// tellPipeline reports the state of an installed pipeline, and returns whether there was one to report. A state caused
// by its slot is reported there.
func (c *checker) tellPipeline(name string, p *pipeline.Pipeline) bool {
	at := slices.IndexFunc(c.stands, func(s report.Pipeline) bool { return s.ID == p.ID })
	if at < 0 {
		return false
	}
	s := &c.stands[at]
	if s.State == c.slot.State || Status(s.Severity) == OK {
		return false
	}
	c.add(name, Status(s.Severity), s.State.Word()+": "+s.Reason, s.Hints...)
	return true
}

// take returns a pipeline as a starting sidecar interprets it, and warns of differences to the configuration.
func (c *checker) take(ctx context.Context, configured pipeline.Spec) (t resolve.Taken, err error) {
	name, d := fmt.Sprintf("pipeline %q", configured.Name), c.o.Descriptions[configured.Name]
	t = resolve.Taken{Configured: configured, Spec: configured, Description: d}
	if !c.installed {
		return t, nil
	}
	taker := resolve.Taker{Slot: c.o.Slot, Stored: c.stored, Known: c.known, Starting: true, Configured: c.configured}
	if err = database.RetryReadOnly(ctx, c.o.Pool, func(tx pgx.Tx) (err error) {
		t, err = taker.Take(ctx, tx, configured, d)
		return err
	}); err != nil {
		return t, err
	}
	for i, w := range t.Warnings {
		if t.Change != nil && i == len(t.Warnings)-1 {
			c.add(name, Warn, w, "embedsidecar apply, or the next run, creates its next generation")
			continue
		}
		c.add(name, Warn, w)
	}
	if t.Kept {
		c.add(name, Warn, "it "+t.Differs.Newer()+": run leaves it as it is set up: "+t.Differs.Was, resolve.WayToNewer)
	}
	return t, nil
}

func (c *checker) configured(name string) bool {
	return slices.ContainsFunc(c.o.Specs, func(s pipeline.Spec) bool { return s.Name == name })
}

// nowCalled adds the table's current name to the error of a missing table.
func nowCalled(err error, name string, set map[string]pipeline.Pipeline) error {
	missing, is := errors.AsType[*refusal.MissingError](err)
	if p, ok := set[name]; is && ok && (p.Status == pipeline.Active || p.Status == pipeline.Unpublished) {
		missing.Hint = resolve.RenamedTo(p.Source())
	}
	return err
}

// toSetUp returns what to do about a pipeline that is configured but not installed.
func (c *checker) toSetUp(p *pipeline.Pipeline, t *resolve.Taken) string {
	other := t.Sharing
	if other == nil || other.OID != p.OID {
		return "run embedsidecar init"
	}
	fingerprint := cmp.Or(c.o.Descriptions[p.Name].Fingerprint, other.Fingerprint)
	switch {
	case t.Renamed && resolve.OnlyRenamed(p, fingerprint, &other.Pipeline):
		return fmt.Sprintf("it is set up as %q: embedsidecar init gives it the new name, and embeds nothing again",
			other.Name)
	case t.Renamed && fingerprint == other.Fingerprint:
		return fmt.Sprintf("pipeline %q writes to its destination: if this is its new name, embedsidecar init applies the name and the other changes; otherwise name another destination", other.Name)
	default:
		return fmt.Sprintf("another pipeline, %q, writes to its destination: name another destination", other.Name)
	}
}

func (c *checker) describe(p *pipeline.Pipeline) string {
	watched := "every column"
	if !p.WatchAll {
		watched = strings.Join(append(pipeline.KeyNames(p.Key), p.Watched...), ", ")
	}
	return fmt.Sprintf("%s into %s, %d wide; reads %s", p.Source(), p.DestinationName(), p.Dims, watched)
}

// holes are vulnerabilities of pgvector, in versions from since up to the one before mended.
var holes = []struct{ since, mended, name, what string }{
	{
		"0.6.0", "0.8.2", "CVE-2026-3172",
		"a role that may build an HNSW index with parallel workers can read other tables or crash the server",
	},
}

func (c *checker) checkVector(version string) {
	if !c.vulnerable(version) {
		c.add(Extension, OK, version)
	}
}

// vulnerable reports whether a version of pgvector is vulnerable, and adds a finding.
func (c *checker) vulnerable(version string) bool {
	for _, h := range holes {
		if older(version, h.mended) && !older(version, h.since) {
			c.add(Extension, Warn, fmt.Sprintf("%s has the vulnerability %s: %s; %s mends it", version, h.name, h.what, h.mended),
				"install the newest package of pgvector on the server, then ALTER EXTENSION vector UPDATE; in each database",
				"until then: SET max_parallel_maintenance_workers = 0 for roles that build indexes")
			return true
		}
	}
	return false
}

// older compares two versions, such as 0.8.1 and 0.10; a part that is not a number counts as 0.
func older(a, b string) bool {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		n, _ := strconv.Atoi(x)
		m, _ := strconv.Atoi(y)
		return cmp.Compare(n, m)
	}) < 0
}
