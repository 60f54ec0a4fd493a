package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/setup/indexes"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

type indexCheckCommand struct {
	queries int
	filter  cli.StringSlice
}

func newIndexCheck() *command {
	c := &indexCheckCommand{}
	return &command{
		name: "check", group: groupObserve, usage: "measure what an index finds, and how fast", arguments: "PIPELINE",
		minArgs: 1, maxArgs: 1,
		description: "Searches for 200 vectors of the table with the index and without it, and prints the recall of the nearest " +
			"10 rows with the times, for several values of hnsw.ef_search (or ivfflat.probes), and the first value " +
			"with a recall of 0.95. Reads every vector 200 times; large tables get fewer searches, so that it ends " +
			"after some minutes. With --filter it measures what searches with that filter find. For choosing " +
			"ef_search by measurement.",
		flags: []cli.Flag{
			own.number("sample", &c.queries, "`N` number of vectors to search for", fmt.Sprint(indexes.Queries)),
			own.list("filter", &c.filter, "`COLUMN=VALUE|JSON` search only these rows, as with search --filter"),
		},
		settings: databaseGroups, run: c.run,
	}
}

func (c *indexCheckCommand) run(ctx context.Context, env *environment) error {
	if c.queries < 0 {
		return misuse("--sample: expected a positive number, not %d", c.queries)
	}
	c.queries = cmp.Or(c.queries, indexes.Queries)
	var filtered indexes.Filtered
	if filter, err := filterFlags(c.filter.Value()); err != nil {
		return err
	} else if len(filter) > 0 {
		filtered = func(ctx context.Context, tx pgx.Tx, p *pipeline.Pipeline) (string, []any, error) {
			return search.Distances(ctx, tx, p, filter)
		}
	}
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	meant, err := lookup.Named(ctx, pool, env.args)
	if err != nil {
		return err
	}
	r, err := indexes.Measure(ctx, pool, &meant[0], c.queries, 2*time.Minute, filtered)
	if wrong, is := errors.AsType[*search.BadRequestError](err); is {
		return misuse("--filter: %v", wrong)
	}
	if err != nil {
		return err
	}
	columns := []string{r.Setting, ">recall@10", ">p50 ms", ">p99 ms"}
	settings := append([]indexes.Setting{r.Exact}, r.Measured...)
	err = output.Each(env.out, r, settings, columns, func(s *indexes.Setting) []any {
		value := fmt.Sprint(s.Value)
		if s.Value == 0 {
			value = "(exact)"
		}
		return []any{value, fmt.Sprintf("%.3f", s.Recall), s.P50, s.P99}
	})
	if env.out.ForPeople() {
		env.say("%s: index %s, %d searches; %s", r.Pipeline, r.Index, r.Queries, r.Way())
	}
	return err
}
