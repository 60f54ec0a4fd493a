package replication

import (
	"slices"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// maxBatch is the maximum number of changes in one enqueue. The buffer holds no more while a commit is running.
const maxBatch = 2000

// buffer holds changes between the reader of the stream and the enqueuer. It bounds memory: a full buffer stops reading
// but not feedback.
type buffer struct {
	// Used by the reader only. Changes of a transaction are held until it ends: a hint may come late, and the lane
	// depends on the size of the transaction.
	open  []queue.Change // of the transaction that is being read
	size  int            // size of open in bytes
	large bool           // the transaction exceeds the limits of open: all its changes are in the low lane
	ready []queue.Change // wait for room in changes
	end   pglogrepl.LSN  // position reached once ready is in changes; 0: none
	soon  bool           // a client waits for end

	mu      sync.Mutex
	changes []queue.Change
	late    map[uint32][]int32 // partitions that are not marked yet, with the pipelines of their tables
	scans   map[int32][]uint32 // pipelines with changes that do not name their rows; partitions, or nil: all
	upTo    pglogrepl.LSN      // end of the last commit that is whole in here, or an idle position
	took    pglogrepl.LSN      // upTo at the last take
	hurry   bool               // a client waits for upTo
	wanted  []pglogrepl.LSN    // positions not reached yet that clients wait for, lowest first
	inside  bool               // the current transaction has added changes
	tooLong int64              // changes of rows whose key is too long for an index of the queue
	changed chan struct{}      // signalled when there is something to take
	room    chan struct{}      // signalled when something was taken
}

func newBuffer() *buffer {
	return &buffer{changed: make(chan struct{}, 1), room: make(chan struct{}, 1), late: map[uint32][]int32{}}
}

// Limits of open. A larger transaction is bulk work: it uses the low lane and edits overtake it.
const (
	largeTransaction = 10_000
	largeBytes       = 16 << 20
)

// add adds a change to the current transaction.
func (b *buffer) add(c queue.Change) {
	if len(c.RowKey) > pipeline.MaxKey {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tooLong++
		return
	}
	if b.large {
		b.ready = append(b.ready, bulk(c))
		return
	}
	b.open = append(b.open, c)
	b.size += len(c.RowKey) + len(c.Unchanged) + len(c.Seen)
	if len(b.open) <= largeTransaction && b.size <= largeBytes {
		return
	}
	b.large = true
	for i := range b.open {
		b.open[i] = bulk(b.open[i])
	}
	b.ready, b.open = append(b.ready, b.open...), nil
}

// bulk returns the change in the low lane, where it is not processed directly.
func bulk(c queue.Change) queue.Change {
	c.Lane, c.Later, c.Said = pipeline.Low, true, true
	return c
}

// hint sets the lane of the current transaction's changes, unless the transaction is a large one.
func (b *buffer) hint(lane pipeline.Lane) {
	for i := range b.open {
		c := &b.open[i]
		c.Lane, c.Later, c.Said = lane, lane == pipeline.Low || c.Seen != nil, true
	}
}

// pour moves ready changes to where the enqueuer takes them. It reports whether the buffer is full: nothing may be
// added until the enqueuer has taken some.
func (b *buffer) pour() (full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := min(len(b.ready), maxBatch-len(b.changes)); n > 0 {
		b.inside = true
		switch all := n == len(b.ready); {
		case all && b.changes == nil:
			b.changes, b.ready = b.ready, nil
		case all:
			b.changes = append(b.changes, b.ready...)
			if b.open == nil { // the next transaction takes its room
				b.open = b.ready[:0]
			}
			b.ready = nil
		default:
			b.changes, b.ready = append(b.changes, b.ready[:n]...), b.ready[n:]
		}
		if len(b.changes) >= maxBatch {
			sleep.Wake(b.changed)
		}
	}
	if len(b.ready) == 0 && b.end != 0 {
		b.committedLocked(b.end, b.soon)
		b.ready, b.end, b.soon = nil, 0, false
	}
	return len(b.changes) >= maxBatch
}

// scan records a change that does not name its rows: a TRUNCATE, or a change of a table whose key is unknown. The scan
// covers the given partitions, or all rows.
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

// mostWanted bounds how many unreached positions are remembered. A client that is left out asks again.
const mostWanted = 100

// want saves the checkpoint as soon as it reaches lsn, or now if lsn is already decoded.
func (b *buffer) want(lsn pglogrepl.LSN) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lsn <= b.upTo {
		b.hurry = true
		sleep.Wake(b.changed)
		return
	}
	if at, found := slices.BinarySearch(b.wanted, lsn); !found {
		b.wanted = slices.Insert(b.wanted, at, lsn)
		b.wanted = b.wanted[:min(len(b.wanted), mostWanted)]
	}
}

// reachedLocked reports whether a client waits for a position that is decoded.
func (b *buffer) reachedLocked() bool {
	n := 0
	for n < len(b.wanted) && b.wanted[n] <= b.upTo {
		n++
	}
	b.wanted = slices.Delete(b.wanted, 0, n)
	return n > 0
}

// commit records that everything before end was added: the current transaction ended, or there was none.
func (b *buffer) commit(end pglogrepl.LSN, hurry bool) {
	if len(b.ready) == 0 {
		b.ready, b.open = b.open, nil
	} else {
		b.ready, b.open = append(b.ready, b.open...), nil
	}
	b.size, b.large = 0, false
	b.end, b.soon = max(b.end, end), b.soon || hurry
	b.pour()
}

// committedLocked records that everything before end is in the buffer or was taken.
func (b *buffer) committedLocked(end pglogrepl.LSN, hurry bool) {
	b.upTo = max(b.upTo, end)
	left := len(b.changes) > 0 || len(b.scans) > 0
	// The enqueuer may have taken all of a large transaction before its end. If the end were not saved at once, a
	// restart would read the transaction again.
	hurry = b.reachedLocked() || hurry || b.inside && !left
	b.inside = false
	b.hurry = b.hurry || hurry
	if left || hurry || b.upTo >= b.took+farBytes {
		sleep.Wake(b.changed)
	}
}

// taken is what one enqueue makes durable.
type taken struct {
	changes []queue.Change
	scans   map[int32][]uint32 // as in buffer
	owners  map[int32][]string // rows for a scan to find through their joined rows
	upTo    pglogrepl.LSN
	hurry   bool
	tooLong int64
	at      time.Time
}

func (b *buffer) take() taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := taken{
		changes: b.changes, scans: b.scans, upTo: b.upTo, hurry: b.hurry, tooLong: b.tooLong, at: time.Now(),
	}
	b.changes, b.scans, b.hurry, b.tooLong = nil, nil, false, 0
	b.took = max(b.took, b.upTo)
	sleep.Wake(b.room)
	return t
}

// farBytes is how far the position moves before it is saved ahead of time: the server keeps the WAL behind it,
// including the WAL of our own writes.
const farBytes = 64 << 20

// An idle position is saved after this many bytes or this much time. More frequent saves would themselves produce WAL.
const (
	idleBytes = 1 << 20
	idleTime  = 10 * time.Minute
)
