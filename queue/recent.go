package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// Looks is how many looks at rows of a pipeline ended in one minute, by way of the queue.
type Looks struct {
	PipelineID int32
	MinutesAgo int32
	Looks      int64
	Failed     int64 // of them
}

// Recent counts the looks of the last minutes, an hour at most.
func Recent(ctx context.Context, db database.Reader, minutes int) ([]Looks, error) {
	const hour = 60
	list, err := database.Collect(ctx, db, "recent_looks", pgx.RowToStructByPos[Looks],
		pgx.StrictNamedArgs{"minutes": min(minutes, hour), "span": bucketSeconds, "buckets": bucketCount})
	if err != nil {
		return nil, fmt.Errorf("count recent looks: %w", err)
	}
	return list, nil
}
