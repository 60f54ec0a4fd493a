package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Where the transaction stands that wrote a row's vector.
const (
	tableFresh  = "SELECT d.changed_at, e.xmin FROM public.docs AS d JOIN public.docs_embedding AS e USING (id)"
	columnFresh = "SELECT d.changed_at, d.xmin FROM public.docs AS d"
)

// freshness is how long it took from each row's last change to its vector, in ms. Both moments are the server's, and
// both are taken just before the commit is flushed, so what the disk takes is in it once. Nobody has to look while the
// load runs.
func freshness(ctx context.Context, pool *pgxpool.Pool, vectors, since string) ([]float64, error) {
	rows, err := pool.Query(ctx, `SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(v.xmin) - v.changed_at)::float8
		FROM (`+vectors+`) AS v WHERE v.changed_at > $1::text::timestamptz`, since)
	if err != nil {
		return nil, fmt.Errorf("ask how fresh the vectors are: %w", err)
	}
	times, err := pgx.CollectRows(rows, pgx.RowTo[float64])
	if err != nil {
		return nil, fmt.Errorf("ask how fresh the vectors are: %w", err)
	}
	return times, nil
}
