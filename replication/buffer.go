package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// maxBatch is how many changes one enqueue takes; the buffer holds no more while a commit is running.
const maxBatch = 2000

// buffer collects changes between the reader of the stream and the enqueuer. It is what makes memory a constant: a
// full one stops the reading, never the feedback.
type buffer struct {
	mu      sync.Mutex
	changes []queue.Change
	scans   map[int32][]uint32 // pipelines with changes that do not name their rows: of some partitions, or nil
	upTo    pglogrepl.LSN      // end of the last commit that is whole in here, or an idle position
	took    pglogrepl.LSN      // upTo when all was taken last
	hurry   bool               // somebody waits for upTo
	wanted  []pglogrepl.LSN    // positions that somebody waits for and that were not reached yet, the nearest first
	inside  bool               // the transaction being read has brought something
	tooLong int64              // changes of rows whose key no index of the queue can hold
	changed chan struct{}      // receives when there is something to take
	room    chan struct{}      // receives when something was taken
}

func newBuffer() *buffer {
	return &buffer{changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (b *buffer) add(c queue.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(c.RowKey) > pipeline.MaxKey {
		b.tooLong++
		return
	}
	b.changes, b.inside = append(b.changes, c), true
	if len(b.changes) >= maxBatch {
		signal(b.changed)
	}
}

// full reports whether nothing more is to be added.
func (b *buffer) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.changes) >= maxBatch
}

// scan notes a change that does not name its rows: a TRUNCATE, or one of a table whose key we do not know.
// It concerns the rows of some partitions, or all.
func (b *buffer) scan(pipelineID int32, partitions ...uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.scans == nil {
		b.scans = map[int32][]uint32{}
	}
	if some, there := b.scans[pipelineID]; len(partitions) > 0 && (!there || some != nil) {
		b.scans[pipelineID] = append(some, partitions...)
	} else {
		b.scans[pipelineID] = nil
	}
	b.inside = true
}

// mostWanted bounds how many positions that are not reached yet are remembered. Who is left out asks again.
const mostWanted = 100

// want has the checkpoint saved as soon as it reaches a position: now, if that is decoded already.
func (b *buffer) want(lsn pglogrepl.LSN) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lsn <= b.upTo {
		b.hurry = true
		signal(b.changed)
		return
	}
	if at, found := slices.BinarySearch(b.wanted, lsn); !found {
		b.wanted = slices.Insert(b.wanted, at, lsn)
		b.wanted = b.wanted[:min(len(b.wanted), mostWanted)]
	}
}

// reachedLocked reports whether somebody waits for a position that is decoded by now.
func (b *buffer) reachedLocked() bool {
	n := 0
	for n < len(b.wanted) && b.wanted[n] <= b.upTo {
		n++
	}
	b.wanted = slices.Delete(b.wanted, 0, n)
	return n > 0
}

// commit says that everything before end is in here or was taken.
func (b *buffer) commit(end pglogrepl.LSN, hurry bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo = max(b.upTo, end)
	left := len(b.changes) > 0 || len(b.scans) > 0
	// All of a large transaction may have been taken before its end. Were its end not saved at once, a restart would
	// read it again.
	hurry = b.reachedLocked() || hurry || b.inside && !left
	b.inside = false
	b.hurry = b.hurry || hurry
	if left || hurry || b.upTo >= b.took+farBytes {
		signal(b.changed)
	}
}

// taken is what one enqueue makes durable.
type taken struct {
	changes []queue.Change
	scans   map[int32][]uint32 // as of the buffer
	upTo    pglogrepl.LSN
	hurry   bool
	tooLong int64
	at      time.Time
}

// take empties the buffer.
func (b *buffer) take() taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := taken{
		changes: b.changes, scans: b.scans, upTo: b.upTo, hurry: b.hurry, tooLong: b.tooLong, at: time.Now(),
	}
	b.changes, b.scans, b.hurry, b.tooLong = nil, nil, false, 0
	b.took = max(b.took, b.upTo)
	signal(b.room)
	return t
}

// farBytes is how far the position moves before it is looked at before its time: what lies behind it is kept as WAL,
// such as that of our own writes.
const farBytes = 64 << 20

// An idle position is persisted when it has moved this far, or after this time: writing it more often would itself be
// WAL.
const (
	idleBytes = 1 << 20
	idleTime  = 10 * time.Minute
)
