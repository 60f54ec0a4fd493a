package worker

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// What a worker needs from the database. The other files decide; the implementations are tested on a real server in
// package sidecar, and tests of decisions use an in-memory one.

// tasks is the part of the queue that a worker uses.
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

// chunkTable is the additional part of a table with chunks: rows.Chunks.
type chunkTable interface {
	Stored(ctx context.Context, keys []string) ([][]rows.StoredChunk, error)
	Known(ctx context.Context, hashes [][]byte, f func(i int, vector []float32)) error
	FetchMoved(ctx context.Context, keys []string, moved []*rows.Chunk) error
	Deep(ctx context.Context, key string) ([]rows.DeepChunk, error)
}

// pages reads a table page by page: rows.Pages.
type pages interface {
	Rows(ctx context.Context, which string, after *string) (keys []string, known []bool, err error)
	Vectors(ctx context.Context, after *string) (keys []string, gone []bool, err error)
	Gone(ctx context.Context, keys []string) (read, gone []string, err error)
	Read(ctx context.Context, keys []string, each func(found []rows.Row), refused func(key string, err error)) error
}

// store is the sidecar's own tables and their joins with the pipeline's tables.
type store interface {
	// begin starts a write-back, which the caller must end even after an error. fence returns the ledger entries to
	// write. It is called once it is known which users' rows are locked; nil: there are none to lock.
	begin(ctx context.Context, l queue.Lease, items int, touched []string, fence func(locked *rows.Locks) []rows.Entry,
	) (openWriteBack, error)
	// screen returns which changes may be processed directly, and reads their rows.
	screen(ctx context.Context, d *queue.Direct, changes []queue.Change, texts int) (rows.Screened, error)
	// writeAtOnce writes vectors, and the ledger where it is unchanged since it was read.
	writeAtOnce(ctx context.Context, d *queue.Direct, writes []rows.Write, entries []rows.Entry) (held bool,
		passed map[string]bool, err error)
	// addTasks adds tasks for rows.
	addTasks(ctx context.Context, keys []string) error
	// known returns where the pipeline's destination has vectors of texts, according to the ledger.
	known(ctx context.Context, hashes [][]byte) ([]knownVector, error)
	// elsewhere is known for the destinations of other pipelines.
	elsewhere(ctx context.Context, pipelines []int32, hashes [][]byte) ([]knownVector, error)
	// vectorsOf reads vectors from another pipeline's destination.
	vectorsOf(ctx context.Context, p *pipeline.Pipeline, keys []string) (map[int][]float32, error)

	readScan(ctx context.Context) (scanState, error)
	// saveScan stores a page's tasks together with the scan's progress. It returns false if another process moved the
	// scan since before was read. With gather the rows go into a batch job instead.
	saveScan(ctx context.Context, before, after *scanState, begin bool, seen int, look []string,
		gather bool) (saved bool, err error)
	scanProgress(ctx context.Context) (phase string, seen, expected int64, err error)
	ledgerPage(ctx context.Context, after *string) (keys []string, err error)
	// withoutTask returns the keys that have no task.
	withoutTask(ctx context.Context, keys []string) ([]string, error)
	blockers(ctx context.Context, barrier string) ([]database.Blocker, error)
}

// openWriteBack is a write-back whose transaction has started.
type openWriteBack struct {
	transaction                 // nil: it did not start
	held        bool            // the lease is still ours
	locked      *rows.Locks     // users' rows that no other session can change meanwhile
	passed      map[string]bool // keys whose ledger entry was unchanged and has been written
}

type transaction interface {
	write(ctx context.Context, c *rows.Change) error
	// commit also finishes the tasks.
	commit(ctx context.Context, outcomes []queue.Outcome) (queue.Finished, error)
	// end releases the connection; it rolls back an uncommitted transaction.
	end(ctx context.Context)
}

// knownVector is where a text's vector is, according to the ledger.
type knownVector struct {
	Pipeline   int32  `db:"pipeline_id"`
	Key        string `db:"row_key"`
	TextHash   []byte
	VectorHash []byte
}

// The stored phases of a scan.
const (
	phaseWaiting = "waiting" // for transactions that were open when it was requested
	phaseRows    = "rows"    // compares each row with the ledger
	phaseOrphans = "orphans" // compares each ledger entry with the rows
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
	Which              *string  // condition for those rows; nil: none are left
	Owners             []string // pipeline.Owner: further rows to compare
	Lost               bool     // ledger entries are compared with the rows as well
	Life               time.Time
}
