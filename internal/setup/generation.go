package setup

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Generation is the next generation of a pipeline, by another model or recipe, as it is made beside the one that
// serves.
type Generation struct {
	Spec     pipeline.Spec // of the next one: same rows, own destination
	Live     resolve.Stored
	ID       int32    // of its row; 0: it is not made yet
	Chunked  bool     // the embedding table that serves has columns of chunks
	Existing bool     // it is there already
	Warnings []string // what may surprise
}

// Other is the number of the other generation, as far as there is one, or else that of the one that serves.
func (g *Generation) Other(live int32) int32 {
	if g.ID != 0 {
		return g.ID
	}
	return live
}

// NextGeneration words the next generation of a pipeline, by another model, by the recipe of recipe, or by both; nil:
// the recipe stays. It returns *ConfigError where there is no next one to make: the vectors are made so already, or
// another generation is there.
func NextGeneration(ctx context.Context, db database.Beginner, live *pipeline.Pipeline, to pipeline.ModelName,
	d embed.Description, recipe *pipeline.Spec,
) (g Generation, err error) {
	var other *resolve.Stored
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) error {
		all, err := resolve.ReadStored(ctx, tx)
		if err != nil {
			return err
		}
		for i := range all {
			if all[i].ID == live.ID {
				g.Live = *all[i].Current()
			}
		}
		other = g.Live.BesideOf(all)
		return changeable(&g.Live, other, madeSo(&g.Live, other, d, recipe))
	})
	if err != nil {
		return g, err
	}
	to.Plugin = cmp.Or(to.Plugin, resolve.PluginOf(pipeline.Spec{}))
	if g.Live.Plugin == to.Plugin && g.Live.Model == to.Model && g.Live.Fingerprint != d.Fingerprint {
		g.Warnings = append(g.Warnings, fmt.Sprintf("the model %q has other weights than before under the same name: "+
			"the present vectors cannot follow changes any more, nor be searched by text, until the switch; "+
			"give new weights a new name to keep both", to.Model))
	}
	if other != nil {
		g.Spec, g.Existing, g.ID = other.Spec, true, other.ID
		return g, nil
	}
	g.Chunked = live.Chunked
	g.Spec = beside(g.Live.Spec, live.Stored, to, d, recipe)
	return g, nil
}

// made tells which generations have the model and the recipe that are asked for.
type made struct{ live, other bool }

func madeSo(live, other *resolve.Stored, d embed.Description, recipe *pipeline.Spec) made {
	same := func(s *resolve.Stored) bool {
		return s != nil && s.Fingerprint == d.Fingerprint && (recipe == nil || s.HasRecipe(*recipe))
	}
	return made{live: same(live), other: same(other)}
}

// changeable refuses a change that makes no sense.
func changeable(live, other *resolve.Stored, wanted made) error {
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: live.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	switch {
	case live.Beside != 0:
		return fail("it is a generation that does not serve", "name its pipeline")
	case wanted.live:
		return fail("its vectors are of this model already, and made of this text in this way")
	case other == nil, wanted.other && !other.Served:
		return nil
	case wanted.other:
		return fail("its vectors were made so before the switch, and are kept",
			"embedsidecar model rollback "+live.Name+" has them serve again")
	case other.Served:
		return fail(fmt.Sprintf("its previous generation, of model %q, is kept", resolve.ModelOf(other.Spec)),
			"take it away first: embedsidecar model drop-old "+live.Name)
	}
	return fail(fmt.Sprintf("a change to %s is under way", whatOf(other, live)),
		"end it first: embedsidecar model switch "+live.Name, "or give it up: embedsidecar model drop-old "+live.Name)
}

// whatOf says what sets a generation apart from the one that serves.
func whatOf(other, live *resolve.Stored) string {
	if resolve.SameModel(other.Spec, live.Spec) {
		return "another text, chunking or type"
	}
	return fmt.Sprintf("model %q", resolve.ModelOf(other.Spec))
}

// beside is a pipeline that leads from the same rows to a destination beside the one that serves, of the same type
// unless the recipe names another.
func beside(live pipeline.Spec, stored pipeline.Stored, to pipeline.ModelName, d embed.Description,
	recipe *pipeline.Spec,
) pipeline.Spec {
	next := live
	if recipe != nil {
		next = resolve.WithRecipe(next, *recipe)
		next.Filter, next.Ignore, next.IntoType = recipe.Filter, recipe.Ignore, recipe.IntoType
	}
	next.Name, next.Plugin, next.Model = live.Name+nextSuffix, to.Plugin, to.Model
	if live.InSource() {
		next.IntoColumn = nextName(live.IntoColumn)
	} else {
		next.IntoSchema, next.IntoTable = live.Destination().Schema, nextName(live.IntoTable)
	}
	if next.IntoType == "" && stored.Takes(d.Sparse) {
		next.IntoType = stored
	}
	return next
}

const nextSuffix = "__next"

// nextName is the name of a destination beside another.
func nextName(name string) string {
	const most = 63 // of the server's names, in bytes
	for len(name)+len(nextSuffix) > most {
		r := []rune(name)
		name = string(r[:len(r)-1])
	}
	return name + nextSuffix
}

// ChangeModel makes the next generation: its destination, its row and its backfill. Done twice, it does nothing the
// second time.
func ChangeModel(ctx context.Context, o Options, g *Generation, d embed.Description) (Report, error) {
	if g.Existing {
		return Report{}, nil
	}
	if g.Live.SlotName != o.Slot {
		return Report{}, &refusal.ConfigError{
			Pipeline: g.Live.Name, Problem: fmt.Sprintf("it is set up with slot %q, not %q", g.Live.SlotName, o.Slot),
			Hint: []string{"--slot " + g.Live.SlotName},
		}
	}
	o.Specs, o.Descriptions, o.Beside = []pipeline.Spec{g.Spec}, map[string]embed.Description{g.Spec.Name: d}, &g.Live
	o.Chunked = g.Chunked
	report, err := Init(ctx, o)
	report.Others = nil // nobody has asked
	report.Warnings = append(slices.Clone(g.Warnings), report.Warnings...)
	return report, err
}

// joinGeneration makes a new pipeline the next generation of another: it knows what was configured of that one, and its
// destination has the same grants.
func joinGeneration(ctx context.Context, tx pgx.Tx, live *resolve.Stored, spec pipeline.Spec, id int32) error {
	configured := resolve.WithRecipe(live.Written, spec)
	configured.Filter, configured.Ignore = spec.Filter, spec.Ignore
	configured.Plugin, configured.Model, configured.ModelBudget = spec.Plugin, spec.Model, spec.ModelBudget
	next := map[string]int32{resolve.Digest(configured): live.DefinitionVersion + 1}
	if _, err := tx.Exec(ctx, `UPDATE embedsidecar.pipeline SET beside = $2, served = false, definitions = $3::jsonb || $4,
		definition_version = $5 WHERE pipeline_id = $1`, id, live.ID, live.Definitions, next,
		live.DefinitionVersion+1); err != nil {
		return fmt.Errorf("write the next generation: %w", err)
	}
	// Who streams looks at once.
	_, err := tx.Exec(ctx, "SELECT embedsidecar.carry_grants($1, $2), embedsidecar.carry_storage($1, $2), "+
		"embedsidecar.note_made($1, $2), CASE WHEN pg_notification_queue_usage() < 0.5 THEN pg_notify($3, '') END",
		live.ID, id, queue.Waiting)
	return wrap.Errorf(err, "give %s the grants that the present destination has", spec.DestinationName())
}

// alongside looks at the other generation of a pipeline, where that has to follow the one that serves: in which rows
// have a vector, which edits count, its name, and its table where another has that name now.
func (in *initializer) alongside(ctx context.Context, tx pgx.Tx, f *resolve.Findings, s *resolve.Stored,
	all []resolve.Stored, taken map[string]bool,
) (*resolve.Findings, *resolve.Stored, error) {
	if s == nil || s.Beside != 0 {
		return nil, nil, nil
	}
	o, p := s.BesideOf(all), &f.Pipeline
	if o == nil || p.Filter == o.Filter && p.Ignore == o.Ignore && p.OID == o.OID &&
		p.Name == s.Name {
		return nil, nil, nil
	}
	next := o.Spec
	next.Schema, next.Table, next.Filter, next.Ignore = p.Schema, p.Table, p.Filter, p.Ignore
	next.ColumnLists = p.ColumnLists
	in.o.Descriptions = maps.Clone(in.o.Descriptions)
	in.o.Descriptions[o.Name] = embed.Description{Fingerprint: o.Fingerprint, Dims: o.Dims}
	found, _, err := in.lookAtPipeline(ctx, tx, next, all, taken)
	if err != nil {
		return nil, nil, err
	}
	if o.Name == s.Name+nextSuffix {
		found.Pipeline.Name = p.Name + nextSuffix
		in.o.Descriptions[found.Pipeline.Name] = in.o.Descriptions[o.Name]
	}
	configured := resolve.WithRecipe(p.Spec, o.Written)
	configured.Plugin, configured.Model, configured.ModelBudget = o.Plugin, o.Model, o.ModelBudget
	found.Digest = resolve.Digest(configured)
	return found, o, nil
}

// detour is how a pipeline goes on whose configured generation is not the one that serves: with the model that serves,
// with the recipe that serves, or with both. warning says why.
type detour struct {
	model, recipe bool
	warning       string
}

// besides says what becomes of a pipeline that is configured with another model than serves or, where that is asked
// for, with another recipe. It goes on with what serves where the other is known: it is that of a generation beside it,
// or one of before. What is new to it is a change: the report has it, and who set up makes the next generation then.
// Other weights under the same name are no change that anybody has asked for.
func (in *initializer) besides(configured, spec pipeline.Spec, s *resolve.Stored, all []resolve.Stored) (d detour,
	err error,
) {
	description, other := in.o.Descriptions[configured.Name], s.BesideOf(all)
	model, wanted := madeSo(s, other, description, nil), madeSo(s, other, description, &spec)
	if wanted.live || model.live && !wanted.other && !spec.Beside {
		return d, nil
	}
	d.model = !model.live
	if !wanted.other && !spec.Beside { // another recipe is none of a generation's
		wanted = model
	} else {
		d.recipe = !s.HasRecipe(spec)
	}
	what, serves := fmt.Sprintf("model %q", resolve.ModelOf(configured)), fmt.Sprintf("model %q", resolve.ModelOf(s.Spec))
	if d.recipe {
		what, serves = "another text, chunking or type", "what is set up"
	}
	switch version, before := s.Definitions[resolve.Digest(configured)]; {
	case wanted.other && other.Served:
		d.warning = fmt.Sprintf("it is configured here with %s, and was switched to %s, which serves: name that in "+
			"the configuration, or go back: embedsidecar model rollback %s", what, serves, s.Name)
		return d, nil
	case wanted.other:
		d.warning = fmt.Sprintf("it is configured here with %s, its next generation; %s serves until embedsidecar "+
			"model switch %s", what, serves, s.Name)
		return d, nil
	case d.model && resolve.SameModel(configured, s.Spec) && !d.recipe:
		return detour{}, nil
	case d.model && before && version < s.DefinitionVersion:
		d.warning = fmt.Sprintf("it is configured here with %s, and was changed to %s: name that in the "+
			"configuration, or change it back: embedsidecar model change %s --to MODEL", what, serves, s.Name)
		return d, nil
	case before && version < s.DefinitionVersion && in.stays(s):
		return detour{}, nil // as any older definition
	}
	if err := changeable(s, other, wanted); err != nil {
		if in.o.Starting && !in.o.DryRun { // nobody has asked just now
			in.keeps(configured.Name, err.Error())
			d.warning = err.Error()
			return d, nil
		}
		return d, err
	}
	if in.o.NoChange {
		d.warning = fmt.Sprintf("it is configured here with %s: %s stays (--no-change)", what, serves)
		return d, nil
	}
	change := ModelChange{
		Pipeline: configured.Name, To: pipeline.ModelName{Plugin: resolve.PluginOf(configured), Model: configured.Model},
	}
	if d.recipe {
		change.Recipe = &spec
	}
	in.report.Changes = append(in.report.Changes, change)
	until := "embedsidecar model switch " + s.Name
	if configured.AutoSwitch {
		until = "the vectors are complete (switch: auto)"
	}
	d.warning = fmt.Sprintf("it is configured with %s, new to it, whose vectors are made beside the present ones: %s "+
		"serves until %s", what, serves, until)
	return d, nil
}
