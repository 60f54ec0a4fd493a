package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// leftoverPortion is the maximum number of ledger rows, and of tasks, deleted in one transaction.
const leftoverPortion = 5000

// DropLeftovers deletes tasks, leases and ledger rows of removed pipelines, in portions with a transaction each. It can
// be interrupted and continued by another process. It returns the number of deleted rows.
func DropLeftovers(ctx context.Context, db database.DB) (rows int64, err error) {
	found, _ := db.Query(ctx, sqlfiles.Query("find_leftovers"))
	ids, err := pgx.CollectRows(found, pgx.RowTo[int32])
	if err != nil {
		return 0, fmt.Errorf("find leftovers of removed pipelines: %w", err)
	}
	for _, id := range ids {
		var after *string
		for {
			var (
				n    int64
				last *string
			)
			err := db.QueryRow(ctx, sqlfiles.Query("drop_leftovers"), pgx.StrictNamedArgs{
				"pipeline_id": id, "after": after,
				"max": leftoverPortion,
			}).Scan(&n, &last)
			if err != nil {
				return rows, fmt.Errorf("delete leftovers of pipeline %d: %w", id, err)
			}
			rows += n
			if n == 0 {
				break
			}
			if last != nil {
				after = last
			}
		}
	}
	return rows, nil
}
