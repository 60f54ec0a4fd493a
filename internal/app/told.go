package app

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/named/control"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/setup/step"
	"github.com/embedsidecar/embedsidecar/internal/setup/uninstall"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// note writes the result of a configuration into the audit; with a pipeline's name, the result for that pipeline.
func note(ctx context.Context, pool *pgxpool.Pool, action, pipeline, by string, told control.Configured, failed error,
) error {
	result := "done"
	if failed != nil {
		result = "refused"
	}
	const most = 3000 // bytes: the limit of the audit, less some for names
	told = told.Short(most).Filled()
	_, err := pool.Exec(ctx, sqlfiles.Query("note_setup"), pgx.StrictNamedArgs{
		"action": action, "pipeline": database.Given(pipeline), "result": result, "said_by": by, "arguments": map[string]any{
			"file": told.File, "changed": told.Changed, "needs_restart": told.NeedsRestart, "removed": told.Removed,
			"steps": told.Steps, "reason": told.Reason,
		},
	})
	return err
}

// whatsOf returns what each step makes or changes.
func whatsOf(steps []step.Step) []string {
	return lists.Map(steps, func(s step.Step) string { return s.What })
}

func costOf(e *estimate.Estimate) control.Cost {
	return control.Cost{
		Pipeline: e.Pipeline, Rows: e.Rows, Texts: e.Texts, Tokens: e.Tokens, Price: e.Price, Currency: e.Currency,
		Line: e.Line(),
	}
}

// lost says what is deleted with a pipeline.
func lost(name string, would uninstall.Removed) string {
	if len(would.Kept) == 0 {
		return fmt.Sprintf("pipeline %q: its tasks, its history, and what is known of each row", name)
	}
	return fmt.Sprintf("pipeline %q: its tasks and its history; vectors stay in %s", name, would.Kept[0])
}

// fileOf returns the absolute path of the configuration file; "": there is none.
func fileOf(c *config.Config) string {
	if c.File() == "" {
		return ""
	}
	if path, err := filepath.Abs(c.File()); err == nil {
		return path
	}
	return c.File()
}

// Estimated estimates embedding all rows of a pipeline that need not be set up.
func Estimated(ctx context.Context, c *config.Config, pool *pgxpool.Pool, plugins *embedders.Pool, spec pipeline.Spec,
	about embed.Description,
) (estimate.Estimate, error) {
	by, err := plugins.Get(spec.Plugin, spec.Model)
	if err != nil {
		return estimate.Estimate{}, err
	}
	return estimate.Make(ctx, estimate.Options{DB: pool, Spec: spec, About: about, By: by, Price: c.PriceOf(spec.Model)})
}

// Unconfigured warns of a pipeline that is set up but not configured: see takeAwayLeaving.
func Unconfigured(name string) string {
	return fmt.Sprintf("pipeline %q is set up but not configured: embedsidecar uninstall %s removes it; run does after %s if it "+
		"belongs to this file and no other sidecar has it", name, health.Argument(name), followAfter)
}

// kept warns of a pipeline that works as it is set up although it is configured differently; "": no difference.
func kept(spec, set pipeline.Spec) string {
	if set.Model == "" { // it uses the default model of the configuration
		spec.Model = ""
	}
	was := resolve.Differences(spec, set)
	if len(was) == 0 {
		return ""
	}
	return fmt.Sprintf("pipeline %q is set up differently than configured here, and works as it is set up (--no-init): %s; "+
		"embedsidecar init changes it, or says what prevents that", spec.Name, strings.Join(was, ", "))
}

// idleModel warns if --model has no effect: the pipelines that are set up have their own models.
func idleModel(c *config.Config, set []pipeline.Pipeline) string {
	model := c.DefaultModel
	if c.Origin("default_model") == "default" || c.Queries.Listen != "" || // queries embed texts with it
		slices.ContainsFunc(set, func(p pipeline.Pipeline) bool { return p.Model == model || p.Model == "" }) {
		return ""
	}
	own := lists.Map(set, func(p pipeline.Pipeline) string { return fmt.Sprintf("%s has %q", p.Name, p.Model) })
	return fmt.Sprintf("no pipeline configured here could take the model %q, and those that are set up keep theirs: %s; "+
		"name the pipeline, too, and leave out --no-init: the set-up changes it, or says what prevents that",
		model, strings.Join(own, ", "))
}
