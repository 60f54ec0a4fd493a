package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/spread"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Retry configures retries.
type Retry struct {
	MaxAttempts int           // attempts of a row that fails because of itself; 0: pipeline.DefaultMaxAttempts
	Initial     time.Duration // first delay; it doubles each time, with jitter; 0: pipeline.DefaultFirstRetry
	Max         time.Duration // maximum delay; 0: pipeline.DefaultLongestRetry
	// Lane is the lane for retries of a failed row; nil: unchanged.
	Lane *pipeline.Lane
}

// Work configures the batches of a pipeline.
type Work struct {
	// concurrent batches: one may be read or written while another is embedded; 0: pipeline.DefaultLoops
	Loops     int
	BatchRows int           // rows per batch; 0: pipeline.DefaultBatchRows
	HeldRows  int           // maximum number of locked rows per write-back to a column; 0: 64; below 0: the whole batch
	Lease     time.Duration // 0: pipeline.DefaultLease
	// maximum batch duration for changes to be processed directly, while the stream waits; 0: 50 ms
	Quick  time.Duration
	Retry  Retry
	Limit  *limit.Limit  // rows and tokens per second, shared by all workers of the process; nil: no limit
	InWork *limit.InWork // of rows in work, shared by all workers of the process; nil: no limit
}

// Options configure a Worker.
type Options struct {
	Work

	Pipeline *pipeline.Pipeline
	DB       database.DB // with the session settings of package database
	Queue    *queue.Queue
	Service  *embed.Service
	ID       int64 // worker_id of this sidecar
	Log      *slog.Logger

	// UserPath is the search_path of users' triggers in a write-back to a column; "": "$user", public.
	UserPath string
	Fresh    func(time.Duration) // called per written row with the time from commit to visible vector; may be nil
	Broken   func()              // called when the pipeline no longer fits its table; may be nil
	// Found is called by Verify for each row that must be processed again; anew: it must be embedded again. May be nil.
	Found func(key string, anew bool)
	// Siblings returns other pipelines, by ID, with the same embedder, so that their vectors can be reused; may be nil.
	Siblings func() map[int32]*pipeline.Pipeline
	Keeper   *restart.Keeper // of the loops; nil: one of its own
	Budget   *Budget         // of texts in memory, shared by all workers of the process; nil: its own
	Tracer   *trace.Tracer   // nil: no traces
	Book     *spend.Book     // accounts for budgets; nil: none
	Jobs     Jobs            // batch jobs of the pipeline; nil: none
	Overtime *rows.Overtime  // of the pool; nil: no limit
	// Spent is called when a budget of the pipeline is used up; may be nil.
	Spent func()
	// Storable makes a message of an embedder fit the database's encoding; nil: it fits.
	Storable func(message string) string
}

// Stats counts the work of a Worker. Its fields may be read at any time.
type Stats struct {
	Embedded, Reused, Unchanged, Skipped, Emptied, Removed atomic.Int64 // rows, by outcome
	Failed, Retried, Locked, Fenced                        atomic.Int64 // rows
	// leases that were lost or expired before their results were written
	Lost    atomic.Int64
	Crashed atomic.Int64 // rows held by an embedder when it crashed
	Written atomic.Int64 // vectors
	// tokens used for this pipeline, as reported by the embedder
	Tokens  atomic.Int64
	Batched atomic.Int64 // tokens of batch jobs, as reported by the provider
	// texts of this pipeline sent to the embedder; texts with a known vector, which were not sent; and texts answered
	// from the cache, by a duplicate in the batch, or by another caller's request
	Sent, Known, Remembered atomic.Int64
	Cut                     atomic.Int64 // texts truncated by the embedder
	Sanitised               atomic.Int64 // texts with invalid UTF-8
	Batches                 atomic.Int64
	LastBatch               atomic.Int64   // end of the last one in Unix nanoseconds; 0: none
	Busy                    atomic.Int64   // busy loops
	Direct                  atomic.Int64   // changes processed directly, without a task
	Fresh                   spread.Counter // time from commit to visible vector

	Held atomic.Pointer[string] // the limit that holds the pipeline back; nil: none
	Rest atomic.Pointer[string] // why the pipeline rests: its last texts all failed; nil: it does not
	// Refused is why no tasks can be leased: a privilege or an object of ours is missing; nil: they can.
	Refused atomic.Pointer[string]
}

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
