package setup

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/catalog"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Generation is the next generation of a pipeline, by another model, as it is made beside the one that serves.
type Generation struct {
	Spec     pipeline.Spec // of the next one: same source, own destination
	Live     resolve.Stored
	ID       int32    // of its row; 0: it is not made yet
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

// NextGeneration words the next generation of a pipeline. It returns *ConfigError where there is no next one to make:
// the vectors are of this model already, or another generation is there.
func NextGeneration(ctx context.Context, db database.Beginner, live *pipeline.Pipeline, to pipeline.ModelName,
	d embed.Description,
) (g Generation, err error) {
	var all []resolve.Stored
	err = database.RetryReadOnly(ctx, db, func(tx pgx.Tx) (err error) {
		all, err = resolve.ReadStored(ctx, tx)
		return err
	})
	if err != nil {
		return g, err
	}
	var other *resolve.Stored
	for i := range all {
		switch {
		case all[i].PipelineID == live.ID:
			g.Live = *all[i].Current()
		case all[i].Beside == live.ID:
			other = all[i].Current()
		}
	}
	if err := changeable(&g.Live, other, d); err != nil {
		return g, err
	}
	if to.Plugin == "" {
		to.Plugin = resolve.PluginOf(pipeline.Spec{})
	}
	if g.Live.Plugin == to.Plugin && g.Live.Model == to.Model {
		g.Warnings = append(g.Warnings, fmt.Sprintf("the model %q has other weights than before under the same name: "+
			"the present vectors cannot follow changes any more, nor be searched by text, until the switch; "+
			"give new weights a new name to keep both", to.Model))
	}
	if other != nil {
		g.Spec, g.Existing, g.ID = other.Spec(), true, other.PipelineID
		return g, nil
	}
	g.Spec = beside(g.Live.Spec(), live.Stored, to, d)
	return g, nil
}

// changeable refuses a change that makes no sense.
func changeable(live, other *resolve.Stored, d embed.Description) error {
	fail := func(problem string, hint ...string) error {
		return &refusal.ConfigError{Pipeline: live.Name, Problem: problem, Hint: hint, Code: code.Taken}
	}
	switch {
	case live.Beside != 0:
		return fail("it is a generation that does not serve", "name its pipeline")
	case live.Fingerprint == d.Fingerprint:
		return fail("its vectors are of this model already")
	case other == nil, other.Fingerprint == d.Fingerprint && !other.Served:
		return nil
	case other.Served && other.Fingerprint == d.Fingerprint:
		return fail("its vectors were made by this model before the switch, and are kept",
			"embedsidecar model rollback "+live.Name+" has them serve again")
	case other.Served:
		return fail(fmt.Sprintf("its previous generation, of model %q, is kept", resolve.ModelOf(other.Spec())),
			"take it away first: embedsidecar model drop-old "+live.Name)
	}
	return fail(fmt.Sprintf("a change to model %q is under way", resolve.ModelOf(other.Spec())),
		"end it first: embedsidecar model switch "+live.Name, "or give it up: embedsidecar model drop-old "+live.Name)
}

// beside is a pipeline that leads from the same rows to a destination beside the one that serves, of the same type.
func beside(live pipeline.Spec, stored pipeline.Stored, to pipeline.ModelName, d embed.Description) pipeline.Spec {
	next := live
	next.Name, next.Plugin, next.Model = live.Name+nextSuffix, to.Plugin, to.Model
	if live.InSource() {
		next.IntoColumn = nextName(live.IntoColumn)
	} else {
		next.IntoSchema, next.IntoTable = live.Destination().Schema, nextName(live.IntoTable)
	}
	if stored.Takes(d.Sparse) {
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
	report, err := Init(ctx, o)
	report.Others = nil // nobody has asked
	report.Warnings = append(slices.Clone(g.Warnings), report.Warnings...)
	return report, err
}

// joinGeneration makes a new pipeline the next generation of another: it knows what was configured of that one, and its
// destination has the same grants.
func joinGeneration(ctx context.Context, tx pgx.Tx, live *resolve.Stored, spec pipeline.Spec, id int32) error {
	configured := live.Written
	configured.Plugin, configured.Model, configured.ModelBudget = spec.Plugin, spec.Model, spec.ModelBudget
	next := map[string]int32{resolve.Digest(configured): live.DefinitionVersion + 1}
	if _, err := tx.Exec(ctx, `UPDATE embedsidecar.pipeline SET beside = $2, served = false, definitions = $3::jsonb || $4,
		definition_version = $5 WHERE pipeline_id = $1`, id, live.PipelineID, live.Definitions, next,
		live.DefinitionVersion+1); err != nil {
		return fmt.Errorf("write the next generation: %w", err)
	}
	// Who streams looks at once.
	if _, err := tx.Exec(ctx, "SELECT embedsidecar.carry_grants($1, $2), embedsidecar.carry_storage($1, $2), "+
		"embedsidecar.note_made($1, $2), pg_notify($3, '')", live.PipelineID, id, queue.Waiting); err != nil {
		return fmt.Errorf("give %s the grants that the present destination has: %w", catalog.DestinationName(spec), err)
	}
	return nil
}

// otherModel says what becomes of a pipeline whose configured model is not the one that serves. It goes on with the one
// that serves where the other is known: it is that of a generation beside it, or one of before. A model that is new to
// it is a change: the report has it, and who set up makes the next generation then. Other weights under the same name
// are no change that anybody has asked for.
func (in *initializer) otherModel(configured pipeline.Spec, s *resolve.Stored, all []resolve.Stored) (warning string,
	goesOn bool, err error,
) {
	description := in.o.Descriptions[configured.Name]
	var other *resolve.Stored
	for i := range all {
		if all[i].Beside == s.PipelineID {
			other = all[i].Current()
		}
	}
	wanted, serves := resolve.ModelOf(configured), resolve.ModelOf(s.Spec())
	if other != nil && other.Fingerprint == description.Fingerprint {
		if other.Served {
			return fmt.Sprintf("it is configured here with model %q, and was switched to model %q, which serves: name that in "+
				"the configuration, or go back: embedsidecar model rollback %s", wanted, serves, s.Name), true, nil
		}
		return fmt.Sprintf("it is configured here with model %q, its next generation; model %q serves until embedsidecar "+
			"model switch %s", wanted, serves, s.Name), true, nil
	}
	if resolve.SameModel(configured, s.Spec()) {
		return "", false, nil
	}
	if version, before := s.Definitions[resolve.Digest(configured)]; before && version < s.DefinitionVersion {
		return fmt.Sprintf("it is configured here with model %q, and was changed to model %q: name that in the "+
			"configuration, or change it back: embedsidecar model change %s --to MODEL", wanted, serves, s.Name), true, nil
	}
	if err := changeable(s, other, description); err != nil {
		if in.o.Starting && !in.o.DryRun { // nobody has asked just now
			in.keeps(configured.Name, err.Error())
			return err.Error(), true, nil
		}
		return "", false, err
	}
	if in.o.NoChange {
		return fmt.Sprintf("it is configured here with model %q: model %q stays (--no-change)", wanted, serves), true, nil
	}
	in.report.Changes = append(in.report.Changes, ModelChange{
		Pipeline: configured.Name, To: pipeline.ModelName{Plugin: resolve.PluginOf(configured), Model: configured.Model},
	})
	until := "embedsidecar model switch " + s.Name
	if configured.AutoSwitch {
		until = "the vectors are complete (switch: auto)"
	}
	return fmt.Sprintf("it is configured with a new model, %q, whose vectors are made beside the present ones: model %q "+
		"serves until %s", wanted, serves, until), true, nil
}
