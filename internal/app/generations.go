package app

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// wish is a model change requested by SQL or HTTP. The sidecar makes it, because SQL cannot query an embedder.
type wish struct {
	PipelineID    int32
	Name          string
	Model, Plugin string
}

// noticed wakes keepWishes and keepIndexes if a pipeline has a wish or a next generation.
func (n *Database) noticed(pipelines []pipeline.Pipeline) {
	if !slices.ContainsFunc(pipelines, func(p pipeline.Pipeline) bool { return p.Wished || p.Beside != 0 }) {
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
		_, err := changeModel(ctx, n.options(), equipment{pool: p.work, owner: p.owner(), plugins: n.plugins}, ModelChange{
			Pipeline: w.Name, To: pipeline.ModelName{Plugin: w.Plugin, Model: w.Model},
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if passing(err) {
			return err // the wish stays
		}
		var why *string
		if err != nil {
			n.o.Log.WarnContext(ctx, "next generation refused", "pipeline", w.Name, "model", w.Model, "error", err,
				"hints", problem.Hints(err))
			words := n.o.Redact(err.Error())
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
