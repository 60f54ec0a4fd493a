package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/manage/verbs"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/estimate"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Backfilled is the result for one pipeline; in a dry run, the expected result.
type Backfilled struct {
	verbs.Outcome

	Estimate *estimate.Estimate `json:"estimate,omitempty"` // dry run only
}

// Backfill rescans all rows of the named pipelines, or embeds them again with verbs.Reembed. by is the user name for
// the audit. A dry run estimates the cost. without says why estimates are missing: a role that may act may lack the
// right to read tables. Reembed also takes keys after the name of a single pipeline.
func Backfill(ctx context.Context, n Options, v *verbs.Verb, by string, names []string, dry bool,
) (list []Backfilled, without []error, err error) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	pool, err := open.Pool(ctx, connection.Few)
	if err != nil {
		return nil, nil, err
	}
	defer pool.Close()
	actor := verbs.New(pool, by)
	var keys, behind []string
	if v.One {
		names, behind = names[:1], names[1:]
	}
	meant, keys, err := actor.Meant(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	keys = append(keys, behind...)
	done, err := actor.Do(ctx, v, meant, verbs.Request{Keys: keys, DryRun: dry})
	if err != nil {
		return nil, nil, err
	}
	list = lists.Map(done, func(o verbs.Outcome) Backfilled { return Backfilled{Outcome: o} })
	if !dry || len(keys) > 0 {
		return list, nil, nil
	}
	found, err := lookup.Named(ctx, pool, names)
	if err != nil {
		return list, []error{err}, ctx.Err()
	}
	plugins := embedders.New(n.source())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	for i := range found {
		e, err := n.Rest(ctx, pool, plugins, &found[i], v == verbs.Reembed)
		if err != nil {
			without = append(without, err)
			continue
		}
		at := slices.IndexFunc(list, func(b Backfilled) bool { return b.Pipeline == found[i].Name })
		if at >= 0 { // otherwise it was added or renamed after the list was made
			list[at].Estimate = &e
		}
	}
	return list, without, ctx.Err()
}

// Rest estimates what is left to embed of a pipeline that is set up; all: embedding every row.
func (n *Options) Rest(ctx context.Context, pool *pgxpool.Pool, plugins *embedders.Pool, p *pipeline.Pipeline, all bool,
) (e estimate.Estimate, err error) {
	if p.Status != pipeline.Active {
		return e, fmt.Errorf("pipeline %q is %s: %s", p.Name, p.Status, p.Detail)
	}
	by, err := plugins.Matching(ctx, p)
	if err != nil {
		return e, err
	}
	about, err := by.Describe(ctx)
	if err != nil {
		return e, err
	}
	o := estimate.Options{DB: pool, Spec: p.Spec, About: about, By: by, Price: n.Config.PriceOf(p.Model)}
	if all {
		return estimate.Make(ctx, o)
	}
	due, err := worker.FindDue(ctx, worker.Options{
		Pipeline: p, DB: pool, Queue: queue.New(pool), Service: embed.NewService(nil, 0), Log: n.Log,
	}, estimate.SampleRows, estimate.SampleBytes)
	if err != nil {
		return e, err
	}
	return estimate.Rest(ctx, o, estimate.Due{
		Rows: due.Rows, Texts: due.Missing + due.Stale, Sample: due.Texts, Longer: due.Longer, Stored: p.Stored,
	})
}
