package report

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// UnknownKeys returns which of some keys a pipeline has never had to do with, in their order.
func UnknownKeys(ctx context.Context, db database.DB, pipelineID int32, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return collect(ctx, db, "look for keys", pgx.RowTo[string], "unknown_keys",
		pgx.StrictNamedArgs{"pipeline_id": pipelineID, "row_keys": keys})
}
