package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/urfave/cli/v2"

	"github.com/embedsidecar/embedsidecar/config"
	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/pipeline"
)

// searchCommand finds the rows nearest to a text.
type searchCommand struct {
	limit int
}

// maxLimit keeps a slip of the finger from asking for the whole table.
const maxLimit = 10000

func newSearch() *command {
	c := &searchCommand{}
	return &command{
		name: "search", group: groupSearch, usage: "find the rows of a pipeline that are nearest to a text", arguments: "PIPELINE TEXT", minArgs: 2, maxArgs: 2,
		description: "Embeds the text with the pipeline's own model, so it cannot be the wrong one.",
		flags: []cli.Flag{
			&cli.IntFlag{Name: "k", Destination: &c.limit, Value: 10, Usage: "`N` rows at most"},
		},
		settings: []string{config.GroupDatabase, config.GroupEmbedding},
		run:      c.run,
	}
}

func (c *searchCommand) run(ctx context.Context, env *environment) error {
	if c.limit < 1 || c.limit > maxLimit {
		return misuse("-k: expected a number from 1 to %d, not %d", maxLimit, c.limit)
	}
	if strings.TrimSpace(env.args[1]) == "" {
		return misuse("the text to search for is empty")
	}
	return c.search(ctx, env, env.args[0], env.args[1])
}

// hit is a row that was found.
type hit struct {
	Key      string  `json:"key"`
	Distance float64 `json:"distance"` // cosine distance, 0 to 2
	Text     string  `json:"text"`     // its first characters
}

func (c *searchCommand) search(ctx context.Context, env *environment, name, text string) (err error) {
	pool, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	found, err := env.named(ctx, pool, []string{name})
	if err != nil {
		return err
	}
	p := &found[0]
	if p.Status != pipeline.Active {
		return fail(exitFailed, fmt.Errorf("pipeline %q cannot work: %s: %s", p.Name, p.Status, p.Detail))
	}
	plugins := newEmbedders(env)
	defer func() { err = errors.Join(err, plugins.Close()) }()
	embedder, err := plugins.matching(ctx, p)
	if err != nil {
		return err
	}
	results, err := embedder.Embed(ctx, embed.Query, []string{text})
	switch {
	case err != nil:
		return err
	case results[0].Err != nil:
		return fail(exitFailed, results[0].Err)
	case results[0].Empty:
		return misuse("the text to search for holds nothing to embed")
	}
	hits, err := nearest(ctx, pool, p, results[0].Vector, c.limit)
	if err != nil {
		return fmt.Errorf("search %q: %w", p.Name, err)
	}
	return env.show(hits, func() listing {
		l := listing{header: []string{"key", "distance", "text"}, right: []int{1}}
		for _, h := range hits {
			l.rows = append(l.rows, []any{h.Key, strconv.FormatFloat(h.Distance, 'f', 4, 64), strings.Join(strings.Fields(h.Text), " ")}) //nolint:mnd // digits
		}
		return l
	})
}

// nearest asks for the rows whose vectors are nearest to one.
func nearest(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline, vector []float32, limit int) ([]hit, error) {
	hits := []hit{}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// An HNSW index finds no more rows than this, whatever the limit; one beyond its range is refused.
		const usual, most = 40, 1000
		if limit > usual {
			if _, err := tx.Exec(ctx, "SELECT set_config('hnsw.ef_search', $1, true)", strconv.Itoa(min(limit, most))); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, searchSQL(p), vectorText(vector), limit)
		if err != nil {
			return err
		}
		hits, err = pgx.AppendRows(hits, rows, pgx.RowToStructByPos[hit])
		return err
	})
	return hits, err
}

// previewed is how many characters of a text are shown.
const previewed = 80

// searchSQL returns the query for the rows nearest to vector $1, at most $2. Only for these the text is made. A vector whose row
// is gone, which waits to be swept out of an embedding table, is not found.
func searchSQL(p *pipeline.Pipeline) string {
	var keys, same, again []string
	for i, k := range p.Key {
		column, own := pgx.Identifier{k.Name}.Sanitize(), fmt.Sprintf("embedsidecar_key_%d", i+1)
		keys = append(keys, "v."+column+" AS "+own)
		same = append(same, "v."+column+" "+k.Equal+" s."+column)
		again = append(again, "r."+column+" "+k.Equal+" embedsidecar_nearest."+own)
	}
	schema := strings.TrimSuffix(p.VectorType, `."vector"`)
	vector, from := "v."+pgx.Identifier{p.IntoColumn}.Sanitize(), p.Source()+" AS v"
	where := vector + " IS NOT NULL"
	if !p.ToColumn() {
		vector = `v."embedding"`
		from = p.Into() + " AS v JOIN " + p.Source() + " AS s ON " + strings.Join(same, " AND ")
		where = "v.generation = " + strconv.Itoa(int(p.Generation))
	}
	distance := vector + " OPERATOR(" + schema + ".<=>) $1::text::" + p.VectorType
	return "WITH embedsidecar_nearest AS MATERIALIZED (SELECT " + strings.Join(keys, ", ") + ", " + distance + " AS embedsidecar_distance FROM " + from +
		" WHERE " + where + " ORDER BY " + distance + " LIMIT $2)\n" +
		"SELECT " + p.KeyExpression("r") + ", embedsidecar_nearest.embedsidecar_distance, coalesce(pg_catalog.left(" + p.TextExpression() + ", " + strconv.Itoa(previewed) + "), '')\n" +
		"FROM embedsidecar_nearest JOIN " + p.Source() + " AS r ON " + strings.Join(again, " AND ") + "\nORDER BY 2, 1"
}
