package report

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// UnknownKeys returns which of some keys a pipeline has never had to do with, in their order.
func UnknownKeys(ctx context.Context, db database.DB, pipelineID int32, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, sqlfiles.Query("unknown_keys"), pgx.StrictNamedArgs{
		"pipeline_id": pipelineID, "row_keys": keys,
	})
	if err != nil {
		return nil, fmt.Errorf("look for keys: %w", err)
	}
	unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for keys: %w", err)
	}
	return unknown, nil
}
