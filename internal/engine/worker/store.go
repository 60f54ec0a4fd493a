package worker

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// What a worker asks of the database. The files beside this one decide; what these do is tried on a real server, in
// package sidecar, and tests of decisions have one in memory.

// tasks is the queue, as far as a worker needs it.
type tasks interface {
	Screen(ctx context.Context, changes []queue.Change, ask queue.Ask) (queue.Screened, error)
	Lease(ctx context.Context, claim queue.Claim) ([]queue.Task, error)
	Extend(ctx context.Context, l queue.Lease, lease time.Duration) error
	GiveBackLease(ctx context.Context, l queue.Lease) error
	Finish(ctx context.Context, worker int64, l queue.Lease, generation int32, outcomes []queue.Outcome) (queue.Finished,
		error)
	Note(pipelineID int32, outcomes []queue.Outcome, done queue.Finished)
	Wake(pipelineIDs ...int32)
	WakeNext(pipelineID int32)
	Wait(ctx context.Context, pipelineID int32, who queue.Who) bool
	MostUrgent(pipelineID int32, who queue.Who) pipeline.Lane
	Backlog(ctx context.Context, pipelineID int32, limit int) (int, error)
}

// table is a pipeline's rows: rows.Table.
type table interface {
	OfUsers() bool
	Holds(r *rows.Row) bool
	Intact(r *rows.Row) bool
	Unchanged(r *rows.Row) bool
	Skipped(r *rows.Row) bool
	Skips(r *rows.Row, seen pipeline.Seen) bool
	VectorHash(w *rows.Write) [pipeline.VectorHashSize]byte
	Read(ctx context.Context, keys []string, texts int) ([]rows.Row, error)
	IsKey(ctx context.Context, key string) bool
	OfSomeRow(ctx context.Context, err error) bool
	Vectors(ctx context.Context, keys []string) (map[int][]float32, error)
	TryWrite(ctx context.Context) error
	Free(ctx context.Context, keys []string) (*rows.Locks, error)
	CanWriteAtOnce() bool
}

// chunkTable is what a table has beside that whose rows have a list of vectors: rows.Chunks.
type chunkTable interface {
	Stored(ctx context.Context, keys []string) ([][]rows.StoredChunk, error)
	Known(ctx context.Context, hashes [][]byte, f func(i int, vector []float32)) error
	FetchMoved(ctx context.Context, keys []string, moved []*rows.Chunk) error
	Deep(ctx context.Context, key string) ([]rows.DeepChunk, error)
}

// pages are a table's rows, page by page: rows.Pages.
type pages interface {
	Rows(ctx context.Context, which string, after *string) (keys []string, known []bool, err error)
	Vectors(ctx context.Context, after *string) (keys []string, gone []bool, err error)
	Gone(ctx context.Context, keys []string) (read, gone []string, err error)
	Read(ctx context.Context, keys []string, each func(found []rows.Row), refused func(key string, err error)) error
}

// store is the sidecar's own tables, and what joins them with a table.
type store interface {
	// begin begins a write-back, which the caller ends, whatever else is returned.
	begin(ctx context.Context, l queue.Lease, items int, touched []string, fence func(locked *rows.Locks) []rows.Entry,
	) (writeBack, error)
	// screen says which changes may be worked at once, and looks at the rows of those.
	screen(ctx context.Context, d *queue.Direct, changes []queue.Change, texts int) (rows.Screened, error)
	// writeAtOnce writes vectors, and the ledger where it is as it was read.
	writeAtOnce(ctx context.Context, d *queue.Direct, writes []rows.Write, entries []rows.Entry) (held bool,
		passed map[string]bool, err error)
	// lookAgain asks for looks at rows.
	lookAgain(ctx context.Context, keys []string) error
	// known returns where vectors of texts are said to be, in the pipeline's own destination.
	known(ctx context.Context, hashes [][]byte) ([]place, error)
	// elsewhere returns the same for the destinations of other pipelines.
	elsewhere(ctx context.Context, pipelines []int32, hashes [][]byte) ([]place, error)
	// vectorsOf reads vectors from another pipeline's destination.
	vectorsOf(ctx context.Context, p *pipeline.Pipeline, keys []string) (map[int][]float32, error)

	readScan(ctx context.Context) (scanState, error)
	// saveScan makes a page's tasks and the scan's progress durable together, and reports false if somebody else moved the
	// scan since it was read as before. With gather they go into a batch job and are no tasks yet.
	saveScan(ctx context.Context, before, after *scanState, begin bool, seen int, look []string,
		gather bool) (saved bool, err error)
	scanProgress(ctx context.Context) (phase string, seen, expected int64, err error)
	ledgerPage(ctx context.Context, after *string) (keys []string, err error)
	// withoutTask leaves out keys that will be looked at anyway.
	withoutTask(ctx context.Context, keys []string) ([]string, error)
	blockers(ctx context.Context, barrier string) ([]database.Blocker, error)
}

// writeBack is a transaction that has begun.
type writeBack struct {
	transaction                 // nil: it did not begin
	held        bool            // the lease is still ours
	locked      *rows.Locks     // rows of users' that nobody else can change meanwhile
	passed      map[string]bool // keys of which the ledger was as it had been read, and has been written
}

type transaction interface {
	write(ctx context.Context, c *rows.Change) error
	// commit finishes tasks on the way.
	commit(ctx context.Context, outcomes []queue.Outcome) (queue.Finished, error)
	// end gives the connection back: it is over, or to be undone.
	end(ctx context.Context)
}

// place is where a vector of a text is said to be.
type place struct {
	Pipeline   int32  `db:"pipeline_id"`
	Key        string `db:"row_key"`
	TextHash   []byte
	VectorHash []byte
}

// The phases of a scan, as they are stored.
const (
	phaseWaiting = "waiting" // for transactions that were open when it was requested
	phaseRows    = "rows"    // each row is compared with the ledger
	phaseOrphans = "orphans" // each entry of the ledger with the rows
	phaseDone    = "done"
)

// scanState is the stored progress.
type scanState struct {
	Phase, Reason      string
	AfterKey           *string
	Requested, Started int64
	MayStart, Routed   bool
	Barrier            string
	Parts              bool     // only some rows are compared
	Which              *string  // those with this condition; nil: there is none any more
	Owners             []string // rows that are compared, too: pipeline.Owner
	Lost               bool     // entries of the ledger are compared with the rows, too
	Life               time.Time
}
