// Package preflight looks before a run at all that it needs: what it finds in the database, and embedders, which it
// starts. It changes nothing.
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

// Check looks at everything. An embedder is started once for all of its pipelines.
func Check(ctx context.Context, pool *pgxpool.Pool, source embedders.Source) (list []check.Finding, err error) {
	plugins := embedders.New(source)
	defer func() { err = errors.Join(err, plugins.Close()) }()
	list = With(ctx, pool, source.Config, plugins)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

// With does so with embedders that somebody has already.
func With(ctx context.Context, pool *pgxpool.Pool, c *config.Config, plugins Describer) []check.Finding {
	ctx = database.Briefly(ctx)
	// What is set up is worked on too. Whether anything is, is a finding of setup's.
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

// needed are the configured pipelines, and the others that are set up.
func needed(configured []pipeline.Spec, loaded []pipeline.Pipeline) []pipeline.Spec {
	all := slices.Clone(configured)
	for i := range loaded {
		if !slices.ContainsFunc(configured, func(spec pipeline.Spec) bool { return spec.Name == loaded[i].Name }) {
			all = append(all, loaded[i].Spec)
		}
	}
	return all
}

// Describer tells what the embedder of a pipeline is.
type Describer interface {
	DescribeOne(ctx context.Context, spec pipeline.Spec) (embed.Description, error)
}

// ofEmbedders asks every embedder that is needed what it is. One that cannot be had is a finding, once.
func ofEmbedders(ctx context.Context, plugins Describer, specs []pipeline.Spec,
) (map[string]embed.Description, []check.Finding) {
	described := map[string]embed.Description{}
	var list []check.Finding
	seen := map[pipeline.ModelName]*embed.Description{} // nil: it cannot be had
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

// Verdict is nil where all would work.
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
