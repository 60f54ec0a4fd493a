package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/manage/generations"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// indexesEvery is how often keepComplete looks for finished backfills.
const indexesEvery = 5 * time.Second

// refusedEvery is the retry interval of a refused switch. comparedFor is how long a comparison of two generations is
// valid.
const (
	refusedEvery = time.Minute
	comparedFor  = time.Hour
)

// completeEvery is how often indexes are checked after all are complete: one may be dropped, and a new partition has
// none. The check of an IVFFlat index for drift reads the ledger of the pipeline.
const completeEvery = time.Hour

// keepComplete builds the configured indexes once their backfills are done, and switches to complete next generations
// that are configured to switch automatically. When all is done it sleeps until a pipeline or a next generation comes,
// or the indexes must be checked.
func (n *Database) keepComplete(ctx context.Context, p *pools) {
	told := "" // last reason not to switch
	for {
		n.building.Store(true)
		known, err := n.indexed(ctx, p)
		finished, complete, switched := false, false, false
		var notYet error
		if err == nil {
			finished, err = n.buildIndexes(ctx, p, known)
			complete = n.tellComplete(ctx, p)
			switched, notYet = n.switchComplete(ctx, p, known)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			n.o.Log.WarnContext(ctx, "index not built yet", "error", err)
		}
		if notYet != nil && notYet.Error() != told {
			told = notYet.Error()
			n.o.Log.WarnContext(ctx, "the next generation does not serve yet", "error", notYet, "hints", problem.Hints(notYet))
		}
		pause := make(<-chan time.Time)
		switch {
		case notYet != nil:
			pause = time.After(refusedEvery)
		case finished && complete && switched && err == nil:
			n.building.Store(false)
			if slices.ContainsFunc(n.config().Pipelines, func(s pipeline.Spec) bool { return s.Index != "" }) {
				pause = time.After(completeEvery)
			}
		case !sleep.For(ctx, indexesEvery):
			return
		default:
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-n.besides:
		case <-pause:
		}
	}
}

// indexed returns the pipelines that are set up, if one is configured with an index or an automatic switch.
func (n *Database) indexed(ctx context.Context, p *pools) ([]pipeline.Pipeline, error) {
	if !slices.ContainsFunc(n.config().Pipelines, func(s pipeline.Spec) bool { return s.Index != "" || s.AutoSwitch }) {
		return nil, nil
	}
	return n.loader.Load(ctx, p.work, n.config().Slot.Name)
}

// buildIndexes builds the indexes that can be built now. It reports whether none is left to wait for.
func (n *Database) buildIndexes(ctx context.Context, p *pools, known []pipeline.Pipeline) (finished bool, err error) {
	finished = true
	var problems []error
	for _, spec := range withNext(lookup.Configured(n.config(), known), known) {
		at := lookup.Find(known, spec.Name)
		if spec.Index == "" || at < 0 || known[at].Status != pipeline.Active {
			continue
		}
		known[at].Index, known[at].IndexBuild = spec.Index, spec.IndexBuild // these are only in the configuration
		began := time.Now()
		state, statements, err := indexes.Build(ctx, p.stream, &known[at])
		switch {
		case err != nil:
			problems = append(problems, err)
		case state == indexes.Waits:
			finished = false
		case state == indexes.There:
			if state, err = indexes.Refresh(ctx, p.stream, &known[at]); err != nil {
				problems = append(problems, err)
			} else if state == indexes.Built {
				n.o.Log.InfoContext(ctx, "index rebuilt: more than half of the vectors were newer than its lists", "pipeline",
					spec.Name, "took_seconds", time.Since(began).Seconds())
			}
		case state == indexes.Built:
			n.o.Log.InfoContext(ctx, "index built", "pipeline", spec.Name, "took_seconds", time.Since(began).Seconds())
		case state == indexes.Refused:
			n.o.Log.WarnContext(ctx, "only the owner of the table can build the index", "pipeline", spec.Name, "sql",
				strings.Join(statements, " "))
		}
	}
	return finished, errors.Join(problems...)
}

// switchComplete switches to complete next generations of pipelines with switch: auto whose configured model they have.
// It reports whether none is left to wait for. A generation that served before was switched off by hand, and is
// skipped.
func (n *Database) switchComplete(ctx context.Context, p *pools, known []pipeline.Pipeline) (finished bool, err error) {
	specs := lookup.Configured(n.config(), known)
	finished = true
	var problems []error
	for i := range known {
		next := &known[i]
		at := slices.IndexFunc(known, func(p pipeline.Pipeline) bool { return next.BesideID != 0 && p.ID == next.BesideID })
		if at < 0 || next.Served || next.Switches > 0 {
			continue
		}
		as := slices.IndexFunc(specs, func(s pipeline.Spec) bool {
			return s.Name == known[at].Name && s.AutoSwitch && resolve.SameModel(s, next.Spec) &&
				(!s.Beside || resolve.SameRecipe(s, next.Spec))
		})
		if as < 0 {
			continue
		}
		states, err := generations.States(ctx, p.work, known[at].Name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		state := slices.IndexFunc(states, func(g generations.Generation) bool {
			return g.PipelineID == next.ID && len(g.Lacks) == 0
		})
		if state < 0 {
			finished = false
			continue
		}
		if err := n.alike(ctx, p, &states[state], specs[as].SwitchOverlap); err != nil {
			problems = append(problems, fmt.Errorf("pipeline %q: %w", known[at].Name, err))
			continue
		}
		_, err = generations.Do(ctx, p.owner(), generations.Request{
			Do: generations.Switch, Pipeline: known[at].Name, By: "switch: auto",
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("pipeline %q: %w", known[at].Name, err))
			continue
		}
		n.o.Log.InfoContext(ctx, "the next generation serves", "pipeline", known[at].Name, "model", next.Model)
	}
	return finished, errors.Join(problems...)
}

// tellComplete writes audit entries about complete next generations. It reports whether none is left to wait for.
func (n *Database) tellComplete(ctx context.Context, p *pools) bool {
	known, err := n.loader.Load(ctx, p.work, n.config().Slot.Name)
	all := err == nil
	for i := range known {
		if known[i].BesideID == 0 || known[i].Served {
			continue
		}
		var told bool
		if err = p.work.QueryRow(ctx, "SELECT embedsidecar.note_complete($1)", known[i].ID).Scan(&told); err != nil || !told {
			all = false
		}
	}
	if err != nil && ctx.Err() == nil {
		n.o.Log.WarnContext(ctx, "could not write the next generation into the audit", "error", err)
	}
	return all
}

// alike returns an error if the next generation finds less than least of the rows that the serving one finds. It
// compares them, as model compare does, unless there is a comparison from the last hour.
func (n *Database) alike(ctx context.Context, p *pools, next *generations.Generation, least float64) error {
	if least == 0 {
		return nil
	}
	if next.ComparedAt == nil || time.Since(*next.ComparedAt) > comparedFor || next.OverlapLeast == nil ||
		*next.OverlapLeast != least {
		r, err := compareModel(ctx, p.work, n.plugins, next.Pipeline, nil, nil)
		if err != nil {
			return fmt.Errorf("compare its generations: %w", err)
		}
		next.Overlap = &r.Overlap
		if _, err := p.work.Exec(ctx, sqlfiles.Query("note_comparison"), pgx.StrictNamedArgs{
			"pipeline_id": next.PipelineID, "overlap": r.Overlap, "least": least, "questions": r.Questions,
		}); err != nil {
			return err
		}
	}
	if *next.Overlap >= least {
		return nil
	}
	return problem.New(problem.Failed, fmt.Errorf("its next generation finds %.2f of the same rows as the one that "+
		"serves; to serve by itself it must find %.2f (switch: {auto: {overlap: %[2]v}})", *next.Overlap, least),
		"embedsidecar model compare "+next.Pipeline+" shows the questions that differ most",
		"embedsidecar model switch "+next.Pipeline+" switches to it anyway; model drop-old removes it")
}

// withNext adds the next generations of pipelines, with the indexes of these pipelines.
func withNext(specs []pipeline.Spec, known []pipeline.Pipeline) []pipeline.Spec {
	all := slices.Clone(specs)
	for i := range known {
		if known[i].BesideID == 0 || known[i].Served {
			continue
		}
		live := slices.IndexFunc(known, func(p pipeline.Pipeline) bool { return p.ID == known[i].BesideID })
		if live < 0 {
			continue
		}
		if at := slices.IndexFunc(specs, func(s pipeline.Spec) bool { return s.Name == known[live].Name }); at >= 0 {
			next := known[i].Spec
			next.Index, next.IndexBuild = specs[at].Index, specs[at].IndexBuild
			all = append(all, next)
		}
	}
	return all
}

// wish is a model change requested by SQL or HTTP. The sidecar makes it, because SQL cannot query an embedder.
type wish struct {
	PipelineID    int32
	Name          string
	Model, Plugin string
}

// noticed wakes keepWishes and keepComplete if a pipeline has a wish or a next generation, and keepComplete if other
// pipelines can work than before: they may lack an index.
func (n *Database) noticed(pipelines []pipeline.Pipeline) {
	active := ""
	for i := range pipelines {
		if p := &pipelines[i]; p.Status == pipeline.Active {
			active += fmt.Sprintf("%d:%d ", p.ID, p.Generation)
		}
	}
	if before := n.active.Swap(&active); active != "" && (before == nil || *before != active) {
		sleep.Wake(n.besides)
	}
	if !slices.ContainsFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Wished || p.BesideID != 0 }) {
		return
	}
	for _, c := range []chan struct{}{n.wished, n.besides} {
		sleep.Wake(c)
	}
}

// keepWishes makes the requested next generations while the sidecar runs.
func (n *Database) keepWishes(ctx context.Context, p *pools) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wished:
		}
		if err := n.grant(ctx, p); err != nil && ctx.Err() == nil {
			n.o.Log.WarnContext(ctx, "next generation not made yet", "error", err)
		}
	}
}

// grant makes the requested next generations, or stores why it cannot.
func (n *Database) grant(ctx context.Context, p *pools) error {
	wishes, err := database.Collect(ctx, p.work, "wishes", pgx.RowToStructByName[wish],
		pgx.StrictNamedArgs{"slot": n.config().Slot.Name})
	if err != nil {
		return err
	}
	for _, w := range wishes {
		by := equipment{pool: p.work, owner: p.owner(), plugins: n.plugins}
		change := resolve.ModelChange{Pipeline: w.Name, To: pipeline.ModelName{Plugin: w.Plugin, Model: w.Model}}
		_, err := changeModel(ctx, n.options(), by, ModelChange{ModelChange: change})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if passing(err) {
			return err // the wish stays
		}
		var why *string
		if err != nil {
			words := n.o.Redact(database.Words(err))
			n.o.Log.WarnContext(ctx, "next generation refused", "pipeline", w.Name, "model", w.Model, "error", err,
				"hints", problem.Hints(err))
			for _, hint := range problem.Hints(err) {
				words += "; " + hint
			}
			why = &words
		} else {
			n.o.Log.InfoContext(ctx, "next generation made", "pipeline", w.Name, "model", w.Model)
		}
		if _, err := p.work.Exec(ctx, sqlfiles.Query("note_wish"),
			pgx.StrictNamedArgs{"pipeline_id": w.PipelineID, "model": w.Model, "problem": why}); err != nil {
			return err
		}
	}
	return nil
}
