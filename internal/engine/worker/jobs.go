package worker

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Jobs are the batch jobs of a pipeline (package jobs), as far as its scans and its tasks know of them.
type Jobs interface {
	// Gather adds rows to the next job, within the transaction of a scan.
	Gather(batch *pgx.Batch, keys []string)
	// Open tells how many jobs there are, how many of them are not ended, and how many rows are gathered for the next one.
	Open(ctx context.Context) (jobs, under int, gathered int64, err error)
	// Close has no more rows be gathered for a job.
	Close(ctx context.Context) error
	// Known returns the vectors that jobs have given for texts.
	Known(ctx context.Context, hashes [][]byte) (map[[32]byte][]float32, error)
}
