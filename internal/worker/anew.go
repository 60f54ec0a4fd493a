package worker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Anew has rows of a pipeline embedded once more, though their texts are what they were, and returns how many have a
// vector. Nothing that is remembered or stored is taken for them. Without keys these are all rows, which a scan looks
// for.
func Anew(ctx context.Context, db database.DB, p *pipeline.Pipeline, keys []string) (rows int64, err error) {
	for after := ""; ; {
		var n int64
		err := database.UntilUnlocked(ctx, func() error {
			return db.QueryRow(ctx, sqlfiles.Query("forget_vectors"), pgx.StrictNamedArgs{
				"pipeline_id": p.ID, "after": after,
				"row_keys": keys,
			}).Scan(&n, &after)
		})
		if err != nil {
			return rows, fmt.Errorf("have rows embedded anew: %w", err)
		}
		if rows += n; n == 0 {
			break
		}
	}
	if keys == nil {
		return rows, queue.RequestScan(ctx, db, "every row is embedded anew, as asked for", []int32{p.ID})
	}
	return rows, queue.Add(ctx, db, p.ID, p.Priority, keys)
}
