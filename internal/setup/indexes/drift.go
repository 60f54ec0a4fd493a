package indexes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// An IVFFlat index finds vectors by lists that were made of the vectors of then. It has drifted when more than half of
// the vectors that are there were written later. When that was stands in a comment on the index.

const madeWord = "embedsidecar: lists made "

// note writes down when the lists of an index were made.
func note(ctx context.Context, conn *pgxpool.Conn, index string, at time.Time) error {
	_, err := conn.Exec(ctx, "COMMENT ON INDEX "+index+" IS "+database.Literal(madeWord+at.UTC().Format(time.RFC3339Nano)))
	return err
}

// Refresh builds the IVFFlat indexes of a pipeline again that a sidecar built and that have drifted: concurrently,
// beside the old ones, which are dropped afterwards, so that no search and no writer waits. It returns There where
// there is nothing to do. What is broken off is ended the next time. The pool must lead straight to the server.
func Refresh(ctx context.Context, pool *pgxpool.Pool, p *pipeline.Pipeline) (State, error) {
	if kindOf(p) != pipeline.IndexIVFFlat {
		return There, nil
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
	}
	defer conn.Release()
	tables, err := indexedTables(ctx, conn, p)
	if err != nil {
		return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
	}
	needed := false
	for _, t := range tables {
		drifted, err := t.drifted(ctx, conn, p)
		if err != nil {
			return "", fmt.Errorf("look whether the index of pipeline %q has drifted: %w", p.Name, err)
		}
		needed = needed || drifted || t.Owned && len(t.Made) > 1
	}
	if !needed {
		return There, nil
	}
	return alone(ctx, pool, conn, p, func(tables []indexedTable) error {
		for _, t := range tables {
			old := t.Made[min(1, len(t.Made)):] // a rebuild that was broken off had come as far as this
			drifted, err := t.drifted(ctx, conn, p)
			if err != nil {
				return err
			}
			if drifted && len(t.Made) == 1 {
				if err := t.build(ctx, conn, p); err != nil {
					return err
				}
				old = t.Made
			}
			if !t.Owned {
				continue
			}
			for _, name := range old {
				if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// drifted reports whether the index of a table is to be built anew. One that says nothing of when it was made is taken
// to be made now.
func (t *indexedTable) drifted(ctx context.Context, conn *pgxpool.Conn, p *pipeline.Pipeline) (drifted bool,
	err error,
) {
	if !t.Owned || len(t.Made) == 0 {
		return false, nil
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimPrefix(t.MadeAt, madeWord))
	if err != nil {
		var now time.Time
		if err := conn.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
			return false, err
		}
		return false, note(ctx, conn, t.Made[0], now)
	}
	err = conn.QueryRow(ctx, `SELECT 2 * count(*) FILTER (WHERE written_at > $2) > count(*) FROM embedsidecar.ledger
		WHERE pipeline_id = $1 AND text_hash IS NOT NULL`, p.ID, at).Scan(&drifted)
	return drifted, err
}
