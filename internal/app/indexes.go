package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// indexesEvery is how often it is looked whether a backfill is done whose index is to be built.
const indexesEvery = 5 * time.Second

// keepIndexes builds the indexes that the configuration asks for as soon as their backfills are done, while the
// sidecar works. When all are there it asks nothing until a pipeline or a next generation comes that wants one. The
// function it returns ends that.
func (n *Database) keepIndexes(ctx context.Context, p *pools) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			finished, err := n.buildIndexes(ctx, p)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				n.o.Log.WarnContext(ctx, "index not built yet", "error", err)
			}
			if finished && err == nil {
				select {
				case <-ctx.Done():
					return
				case <-n.besides:
				}
			} else if !sleep.For(ctx, indexesEvery) {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// buildIndexes builds what can be built now. It reports whether nothing is left to wait for.
func (n *Database) buildIndexes(ctx context.Context, p *pools) (finished bool, err error) {
	if !slices.ContainsFunc(n.config().Pipelines, func(s pipeline.Spec) bool { return s.Index != "" }) {
		return true, nil
	}
	known, err := lookup.StoredBy(ctx, &n.loader, p.work, n.config().Slot.Name)
	if err != nil {
		return false, err
	}
	finished = true
	var problems []error
	for _, spec := range withNext(lookup.Configured(n.config(), known), known) {
		at := lookup.Find(known, spec.Name)
		if spec.Index == "" || at < 0 || known[at].Status != pipeline.Active {
			continue
		}
		known[at].Index, known[at].IndexBuild = spec.Index, spec.IndexBuild // which only the configuration says
		began := time.Now()
		state, statements, err := indexes.Build(ctx, p.stream, &known[at])
		switch {
		case err != nil:
			problems = append(problems, err)
		case state == indexes.Waits:
			finished = false
		case state == indexes.Built:
			n.o.Log.InfoContext(ctx, "index built", "pipeline", spec.Name, "took_seconds", time.Since(began).Seconds())
		case state == indexes.Refused:
			n.o.Log.WarnContext(ctx, "index left to the owner of the table, as this role is not", "pipeline", spec.Name, "sql",
				strings.Join(statements, " "))
		}
	}
	return finished, errors.Join(problems...)
}

// withNext adds the next generations of pipelines, which get the index that these have.
func withNext(specs []pipeline.Spec, known []pipeline.Pipeline) []pipeline.Spec {
	all := slices.Clone(specs)
	for i := range known {
		if known[i].Beside == 0 || known[i].Served {
			continue
		}
		live := slices.IndexFunc(known, func(p pipeline.Pipeline) bool { return p.ID == known[i].Beside })
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
