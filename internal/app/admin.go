package app

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/internal/status/check"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/preflight"
)

// check looks at everything that running depends on, as embedsidecar check does: with the embedders that work here, or
// where none does with new ones, since one that was started long ago tells nothing of what is there now.
func (n *Node) check(ctx context.Context, pool *pgxpool.Pool) []check.Finding {
	c := n.o.Config
	if n.Snapshot().Phase == observe.Queries {
		found, err := preflight.Check(ctx, pool, n.source())
		list := make([]check.Finding, 0, len(found)+1)
		for _, f := range found {
			list = append(list, check.Finding{Name: f.Check, Status: f.Status, Detail: f.Detail, Hint: f.Hints})
		}
		if err != nil {
			list = append(list, check.Finding{Name: "check", Status: check.Wrong, Detail: database.Words(err), Hint: problem.Hints(err)})
		}
		return list
	}
	loaded, err := lookup.Stored(ctx, pool, c.Slot.Name)
	if err != nil { // whether anything is set up is a finding
		loaded = nil
	}
	specs := lookup.Configured(c, loaded)
	all := slices.Clone(specs)
	for i := range loaded {
		if !slices.ContainsFunc(specs, func(spec pipeline.Spec) bool { return spec.Name == loaded[i].Name }) {
			all = append(all, loaded[i].Spec)
		}
	}
	described := map[string]embed.Description{}
	var list []check.Finding
	told := map[pipeline.ModelName]bool{}
	for _, spec := range all {
		d, err := n.plugins.DescribeOne(ctx, spec)
		if err == nil {
			described[spec.Name] = d
		}
		if key := spec.ModelName(); !told[key] {
			told[key] = true
			f := check.Finding{Name: "embedder " + spec.Plugin, Status: check.OK, Detail: fmt.Sprintf("%s, %d wide", d.Model, d.Dims)}
			if err != nil {
				f.Status, f.Detail, f.Hint = check.Wrong, database.Words(err), problem.Hints(err)
			}
			list = append(list, f)
		}
	}
	return append(list, check.Run(ctx, check.Options{
		Pool: pool, ReplicationDSN: c.Database.Stream(), Slot: c.Slot.Name, Publication: c.Publication.Name, Specs: specs,
		Descriptions: described,
	})...)
}
