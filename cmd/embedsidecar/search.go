package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/output"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// searchCommand finds the rows nearest to a text, or to a row.
type searchCommand struct {
	limit    int
	hybrid   bool
	explain  bool
	language string
	key      string // of a row: those similar to it
	where    cli.StringSlice
}

func newSearch() *command {
	c := &searchCommand{limit: 10}
	return &command{
		name: "search", group: groupSearch, usage: "find the rows of a pipeline that are nearest to a text, or to a row",
		arguments: "PIPELINE [TEXT]", minArgs: 1, maxArgs: 2,
		description: "Embeds the text with the pipeline's own model. With --hybrid, rows are also ranked by full text " +
			"search, and both rankings are joined by reciprocal rank fusion. With --like in place of TEXT it finds the " +
			"rows most similar to that one, and embeds nothing; a key is written as search prints it: the values of " +
			"its columns, joined by | if there are several. For trying a search; applications search by SQL or HTTP.",
		flags: []cli.Flag{
			own.number("k", &c.limit, "`N` rows at most"),
			own.list("filter", &c.where, "`COLUMN=VALUE` only rows with this value; repeat for more"),
			own.text("like", &c.key, "`KEY` of the row to which others are similar"),
			own.toggle("hybrid", &c.hybrid, "by vector and by full text search"),
			own.text("language", &c.language, "`NAME` text search configuration of --hybrid", "the database's own"),
			own.toggle("explain", &c.explain, "print the statement and its plan instead"),
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

// check refuses what makes no sense before anything is asked.
func (c *searchCommand) check(env *environment) (map[string]search.Filter, error) {
	if c.limit < 1 || c.limit > search.MaxRows {
		return nil, misuse("-k: expected a number from 1 to %d, not %d", search.MaxRows, c.limit)
	}
	if (c.key == "") != (len(env.args) == 2) {
		return nil, misuse("search for a TEXT, or with --like for what is similar to a row")
	}
	if c.key != "" && (c.hybrid || c.explain) {
		return nil, misuse("--like finds rows by their vectors alone, and goes without --hybrid and --explain")
	}
	if c.language != "" && !c.hybrid {
		return nil, misuse("--language says how --hybrid reads words, and goes with it")
	}
	return filterFlags(c.where.Value())
}

// filterFlags reads conditions of the form COLUMN=VALUE.
func filterFlags(conditions []string) (map[string]search.Filter, error) {
	filter := map[string]search.Filter{}
	for _, condition := range conditions {
		column, value, ok := strings.Cut(condition, "=")
		if !ok || column == "" {
			return nil, misuse("--filter: expected COLUMN=VALUE, not %q", condition)
		}
		filter[column] = search.Filter{Values: append(filter[column].Values, value)}
	}
	return filter, nil
}

func (c *searchCommand) run(ctx context.Context, env *environment) (err error) {
	filter, err := c.check(env)
	if err != nil {
		return err
	}
	if c.key != "" {
		return c.similar(ctx, env, filter)
	}
	text := env.args[1]
	if strings.TrimSpace(text) == "" {
		return misuse("the text to search for is empty")
	}
	_, err = query.Settled(ctx, func(bool) (struct{}, error) { return struct{}{}, c.near(ctx, env, text, filter) })
	return err
}

// near embeds the text and shows what is near to it.
func (c *searchCommand) near(ctx context.Context, env *environment, text string, filter map[string]search.Filter,
) (err error) {
	pool, p, err := c.pipeline(ctx, env)
	if err != nil {
		return err
	}
	defer pool.Close()
	plugins := embedders.New(env.embedders())
	defer func() { err = errors.Join(err, plugins.Close()) }()
	vector, err := query.Vector(ctx, plugins, p, text)
	if err != nil {
		return err
	}
	request := search.Request{
		Vector: vector, Text: text, Hybrid: c.hybrid, Language: c.language, Rows: c.limit, Filter: filter,
	}
	limit := env.config.Queries.SearchTimeout
	if c.explain {
		e, err := search.Within(ctx, limit, func(ctx context.Context) (search.Explanation, error) {
			return search.Explain(ctx, pool, p, request)
		})
		if err != nil {
			return query.Classified(p, err)
		}
		if !env.out.ForPeople() {
			return env.out.Show(e, func() output.Table {
				return output.Row([]string{"statement", "index"}, e.Statement, e.Index)
			})
		}
		if err := env.printf("%s;\n\n%s\n", e.Statement, strings.Join(e.Plan, "\n")); err != nil || e.Index == "" {
			return err
		}
		return env.printf("\n-- the index that the words can use:\n%s;\n", e.Index)
	}
	hits, err := search.Within(ctx, limit, func(ctx context.Context) ([]search.Hit, error) {
		return search.Find(ctx, pool, p, request)
	})
	if err != nil {
		return query.Classified(p, err)
	}
	return env.showHits(p, hits, c.hybrid)
}

func (c *searchCommand) similar(ctx context.Context, env *environment, filter map[string]search.Filter) error {
	pool, p, err := c.pipeline(ctx, env)
	if err != nil {
		return err
	}
	defer pool.Close()
	hits, err := search.Within(ctx, env.config.Queries.SearchTimeout, func(ctx context.Context) ([]search.Hit, error) {
		return query.Similar(ctx, pool, p, c.key, search.Request{Rows: c.limit, Filter: filter})
	})
	if err != nil {
		return err
	}
	return env.showHits(p, hits, c.hybrid)
}

// pipeline connects and finds the pipeline that is the first argument. The caller closes the pool.
func (*searchCommand) pipeline(ctx context.Context, env *environment) (*pgxpool.Pool, *pipeline.Pipeline, error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, err := query.Searchable(ctx, pool, env.args[0])
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, p, nil
}

// showHits shows what a search has found.
func (e *environment) showHits(p *pipeline.Pipeline, hits []search.Hit, hybrid bool) error {
	return e.out.Show(hits, func() output.Table {
		columns := []string{"key", ">distance", "text"}
		if hybrid {
			columns = []string{"key", ">score", ">distance", "text"}
		}
		digits := 4
		if p.Stored == pipeline.StoredBit {
			digits = 0
		}
		number := func(x *float64, digits int) string {
			if x == nil {
				return "-"
			}
			return strconv.FormatFloat(*x, 'f', digits, 64)
		}
		return output.Rows(hits, columns, func(h *search.Hit) []any {
			row := []any{h.Key}
			if hybrid {
				row = append(row, number(h.Score, 4)) //nolint:mnd // digits
			}
			return append(row, number(h.Distance, digits), h.Line())
		})
	})
}
