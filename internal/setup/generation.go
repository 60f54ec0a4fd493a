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
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Generation is the next generation of a pipeline, with another model or recipe, built beside the live one.
type Generation struct {
	Spec     pipeline.Spec // of the next generation: same rows, own destination
	Live     resolve.Stored
	ID       int32 // of its row; 0: not made yet
	Chunked  bool  // the live embedding table has columns of chunks
	Existing bool  // the next generation is already set up
	Warnings []string
}

// Other returns the number of the next generation if it is made, else that of the live one.
func (g *Generation) Other(live int32) int32 { return cmp.Or(g.ID, live) }

// NextGeneration plans the next generation of a pipeline with another model, with the recipe of recipe (nil:
// unchanged), or with both. It returns *ConfigError if there is nothing to change, or if another generation already
// exists.
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
		return resolve.Changeable(&g.Live, other, d, recipe)
	})
	if err != nil {
		return g, err
	}
	to.Plugin = cmp.Or(to.Plugin, resolve.PluginOf(pipeline.Spec{}))
	if g.Live.Plugin == to.Plugin && g.Live.Model == to.Model && g.Live.Fingerprint != d.Fingerprint {
		g.Warnings = append(g.Warnings, fmt.Sprintf("the model %q has new weights under the same name: "+
			"until the switch, the present vectors cannot be updated or searched by text; "+
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

// beside returns the spec of a pipeline with the same rows as live and a destination of its own, of the same type
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

// nextName returns a name for a destination beside another.
func nextName(name string) string {
	const most = 63 // of the server's names, in bytes
	for len(name)+len(nextSuffix) > most {
		r := []rune(name)
		name = string(r[:len(r)-1])
	}
	return name + nextSuffix
}

// ChangeModel makes the next generation: its destination, its row and its backfill. It is idempotent.
func ChangeModel(ctx context.Context, o Options, g *Generation, d embed.Description) (Report, error) {
	if g.Existing {
		return Report{}, nil
	}
	if g.Live.SlotName != o.Slot {
		return Report{}, refusal.For(g.Live.Name, "", fmt.Sprintf("it is set up with slot %q, not %q", g.Live.SlotName,
			o.Slot), "--slot "+g.Live.SlotName)
	}
	o.Specs, o.Descriptions, o.Beside = []pipeline.Spec{g.Spec}, map[string]embed.Description{g.Spec.Name: d}, &g.Live
	o.Chunked = g.Chunked
	report, err := Init(ctx, o)
	report.Others = nil // the caller did not ask for them
	report.Warnings = append(slices.Clone(g.Warnings), report.Warnings...)
	return report, err
}

// joinGeneration makes a new pipeline the next generation of another: it copies the configured definition and the
// grants of the destination.
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
	// The streamer reacts immediately.
	_, err := tx.Exec(ctx, "SELECT embedsidecar.carry_grants($1, $2), embedsidecar.carry_storage($1, $2), "+
		"embedsidecar.note_made($1, $2), CASE WHEN pg_notification_queue_usage() < 0.5 THEN pg_notify($3, '') END",
		live.ID, id, queue.Waiting)
	return wrap.Errorf(err, "give %s the grants that the present destination has", spec.DestinationName())
}

// alongside inspects the other generation of a pipeline and makes it follow the live one in filter, ignore, name and
// key, and in its table if another table has that name now.
func (in *initializer) alongside(ctx context.Context, tx pgx.Tx, f *resolve.Findings, s *resolve.Stored,
	all []resolve.Stored, taken map[string]bool,
) (*resolve.Findings, *resolve.Stored, error) {
	if s == nil || s.BesideID != 0 {
		return nil, nil, nil
	}
	o, p := s.BesideOf(all), &f.Pipeline
	if o == nil || p.Filter == o.Filter && p.Ignore == o.Ignore && p.OID == o.OID && p.Name == s.Name &&
		slices.Equal(pipeline.KeyNames(p.Key), o.KeyColumns) {
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
