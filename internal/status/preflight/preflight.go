// Package preflight checks everything that a run needs: the database, and the embedders, which it starts. It changes
// nothing.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/setup/resolve"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
)

// Check runs all checks. It starts each embedder once for all of its pipelines.
func Check(ctx context.Context, pool *pgxpool.Pool, source embedders.Source) (list []check.Finding, err error) {
	plugins := embedders.New(source)
	defer func() { err = errors.Join(err, plugins.Close()) }()
	list = With(ctx, pool, source.Config, plugins)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

// With runs the checks with existing embedders.
func With(ctx context.Context, pool *pgxpool.Pool, c *config.Config, plugins Describer) []check.Finding {
	ctx = database.Briefly(ctx)
	// A run works on installed pipelines, too. Their absence is a finding of check.Run.
	loader := resolve.Loader{Once: true}
	loaded, err := loader.Settled(ctx, pool, c.Slot.Name)
	if err != nil {
		loaded = nil
	}
	if in, _, err := lookup.InSchemas(ctx, pool, c); err == nil {
		c = in
	}
	specs := lookup.Configured(c, loaded)
	described, list := ofEmbedders(ctx, plugins, needed(specs, loaded))
	return append(list, check.Run(ctx, check.Options{
		Pool: pool, ReplicationDSN: c.Database.Stream(), Slot: c.Slot.Name, Publication: c.Publication.Name,
		Specs: specs, Descriptions: described, Loaded: loaded, Stored: loader.Rows,
	})...)
}

// needed returns the configured pipelines and the other installed ones.
func needed(configured []pipeline.Spec, loaded []pipeline.Pipeline) []pipeline.Spec {
	all := slices.Clone(configured)
	for i := range loaded {
		if !slices.ContainsFunc(configured, func(spec pipeline.Spec) bool { return spec.Name == loaded[i].Name }) {
			all = append(all, loaded[i].Spec)
		}
	}
	return all
}

// Describer describes the embedder of a pipeline.
type Describer interface {
	DescribeOne(ctx context.Context, spec pipeline.Spec) (embed.Description, error)
}

// ofEmbedders asks every needed embedder for its description. An unavailable embedder is one finding.
func ofEmbedders(ctx context.Context, plugins Describer, specs []pipeline.Spec,
) (map[string]embed.Description, []check.Finding) {
	described := map[string]embed.Description{}
	var list []check.Finding
	seen := map[pipeline.ModelName]*embed.Description{} // nil: unavailable
	for _, spec := range specs {
		d, asked := seen[spec.ModelName()]
		if !asked {
			found, err := plugins.DescribeOne(ctx, spec)
			finding := check.Finding{
				Name: "embedder " + found.Plugin, Status: check.OK, Detail: fmt.Sprintf("%s, %d wide", found.Model, found.Dims),
			}
			if d = &found; err != nil {
				d, finding = nil, check.Finding{
					Name: "embedder " + spec.Plugin, Status: check.Wrong, Detail: database.Words(err), Hint: problem.Hints(err),
				}
			}
			seen[spec.ModelName()], list = d, append(list, finding)
		}
		if d != nil {
			described[spec.Name] = *d
		}
	}
	return described, list
}

// Verdict returns an error if a check failed.
func Verdict(list []check.Finding) error {
	var wrong int64
	for _, f := range list {
		if f.Status == check.Wrong {
			wrong++
		}
	}
	if wrong == 0 {
		return nil
	}
	return problem.New(problem.Failed, fmt.Errorf("%s would not work", wording.Count(wrong, "thing")))
}
