package worker

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/spread"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/spend"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Retry says how failed work is tried again.
type Retry struct {
	MaxAttempts int           // tries of a row that fails because of itself; 0: pipeline.DefaultMaxAttempts
	Initial     time.Duration // first pause; it doubles each time, ±50 %; 0: pipeline.DefaultFirstRetry
	Max         time.Duration // longest pause; 0: pipeline.DefaultLongestRetry
	// Lane is that in which a row that failed is tried again; nil: the one it is in.
	Lane *pipeline.Lane
}

// Options are what a Worker needs.
type Options struct {
	Pipeline *pipeline.Pipeline
	DB       database.DB // with the session settings of package database
	Queue    *queue.Queue
	Service  *embed.Service
	ID       int64 // of this sidecar in the table worker
	Log      *slog.Logger

	// batches in work at once: one may be read or written while another is embedded; 0: pipeline.DefaultLoops
	Loops     int
	BatchRows int           // rows per batch; 0: pipeline.DefaultBatchRows
	HeldRows  int           // rows of a column that one write-back holds at most; 0: 64; below 0: the whole batch
	Lease     time.Duration // 0: pipeline.DefaultLease
	// how long a batch may take for changes to be worked at once, while the stream waits; 0: 50 ms
	Quick time.Duration
	Retry Retry
	// UserPath is the search_path that the user's triggers run under in a write-back to a column; "": "$user", public.
	UserPath string
	Fresh    func(time.Duration) // called per written row with the time from commit to visible vector; may be nil
	Broken   func()              // called when the pipeline no longer fits its table; may be nil
	// Found is called by Verify for each row that another look, or, if anew, another vector would mend; may be nil.
	Found func(key string, anew bool)
	// Siblings returns other pipelines, by number, whose vectors the same embedder made, so that theirs can be used again;
	// may be nil.
	Siblings func() map[int32]*pipeline.Pipeline
	Keeper   *restart.Keeper // of the loops; nil: one of its own
	Budget   *Budget         // of texts in memory, shared by all workers of the process; nil: one of its own
	Limit    *limit.Limit    // of rows and tokens a second, shared by all workers of the process; nil: there is none
	InWork   *limit.InWork   // of rows in work, shared likewise; nil: there is no limit
	Tracer   *trace.Tracer   // nil: nothing is traced
	Book     *spend.Book     // of what budgets pay for; nil: nobody keeps one
	Jobs     Jobs            // batch jobs of the pipeline; nil: it has none
	// Spent is called when a budget of the pipeline is spent; may be nil.
	Spent func()
}

// Stats counts what a Worker did. Its fields may be read at any time.
type Stats struct {
	Embedded, Reused, Unchanged, Skipped, Emptied, Removed atomic.Int64 // rows, by how their task ended
	Failed, Retried, Locked, Fenced                        atomic.Int64 // rows
	// leases that were over, or somebody else's, when their work was to be written
	Lost    atomic.Int64
	Crashed atomic.Int64 // rows that an embedder held when it died
	Written atomic.Int64 // vectors
	// that the embedder saw for this pipeline, as far as it says how many
	Tokens  atomic.Int64
	Batched atomic.Int64 // tokens of batch jobs, as far as the provider says how many
	// texts of this pipeline that the embedder was asked for; those whose vector was known, so that nobody asked; and
	// those that were answered without it: asked for a moment ago, twice in a batch, or by somebody else
	Sent, Known, Remembered atomic.Int64
	Cut                     atomic.Int64 // texts that the embedder cut, as they are longer than it takes
	Sanitised               atomic.Int64 // texts with bytes that are no UTF-8
	Batches                 atomic.Int64
	LastBatch               atomic.Int64   // when it ended, in nanoseconds since 1970; 0: there was none
	Busy                    atomic.Int64   // loops at work now
	Direct                  atomic.Int64   // changes that were worked at once, without a task
	Fresh                   spread.Counter // how long rows took from the commit to the visible vector

	Held atomic.Pointer[string] // the limit that holds the pipeline back; nil: none does
	Rest atomic.Pointer[string] // why the pipeline rests: its last texts all failed; nil: it does not
	// Refused is why the server hands out no tasks: a privilege or something of ours is missing; nil: it does.
	Refused atomic.Pointer[string]
}
