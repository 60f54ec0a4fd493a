package worker

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Jobs are a pipeline's batch jobs (package jobs), as used by its scans and tasks.
type Jobs interface {
	// Gather adds rows to the next job, in the transaction of a scan.
	Gather(batch *pgx.Batch, keys []string)
	// Open returns the number of jobs, of unfinished jobs, and of rows gathered for the next one.
	Open(ctx context.Context) (jobs, under int, gathered int64, err error)
	// Close stops gathering rows for a job.
	Close(ctx context.Context) error
	// Known returns the vectors that jobs returned for texts.
	Known(ctx context.Context, hashes [][]byte) (map[[32]byte][]float32, error)
}
