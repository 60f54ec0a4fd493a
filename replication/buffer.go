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

// maxBatch is how many changes one enqueue takes; the buffer holds no more while a commit is running.
const maxBatch = 2000

// buffer collects changes between the reader of the stream and the enqueuer. It is what makes memory a constant: a
// full one stops the reading, never the feedback.
type buffer struct {
	// The reader alone touches these. What a transaction has brought waits for its end, since a hint may come late, and
	// how urgent it is depends on how large it is.
	open  []queue.Change // of the transaction that is being read
	size  int            // of these, in bytes
	large bool           // it has brought more than is kept open: all of it is in the low lane
	ready []queue.Change // that wait for room in changes
	end   pglogrepl.LSN  // a position that is reached when these are in there; 0: none
	soon  bool           // somebody waits for that

	mu      sync.Mutex
	changes []queue.Change
	late    map[uint32][]int32 // partitions that are not marked yet, with the pipelines of their tables
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
	return &buffer{changed: make(chan struct{}, 1), room: make(chan struct{}, 1), late: map[uint32][]int32{}}
}

// What is kept open of a transaction. A larger one is bulk work: it goes to the low lane, and edits overtake it.
const (
	largeTransaction = 10_000
	largeBytes       = 16 << 20
)

// add adds a change to the transaction that is being read.
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

// bulk is a change in the low lane, which is not worked at once.
func bulk(c queue.Change) queue.Change {
	c.Lane, c.Later, c.Said = pipeline.Low, true, true
	return c
}

// hint gives the changes of the transaction that is being read another lane, unless it is a large one.
func (b *buffer) hint(lane pipeline.Lane) {
	for i := range b.open {
		c := &b.open[i]
		c.Lane, c.Later, c.Said = lane, lane == pipeline.Low || c.Seen != nil, true
	}
}

// pour moves what is ready to where the enqueuer takes it, and reports whether nothing more is to be added until it
// does.
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
		sleep.Wake(b.changed)
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

// commit says that everything before end was added: the transaction that was being read is over, or there was none.
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

// committedLocked says that everything before end is in here or was taken.
func (b *buffer) committedLocked(end pglogrepl.LSN, hurry bool) {
	b.upTo = max(b.upTo, end)
	left := len(b.changes) > 0 || len(b.scans) > 0
	// All of a large transaction may have been taken before its end. Were its end not saved at once, a restart would
	// read it again.
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
	scans   map[int32][]uint32 // as of the buffer
	owners  map[int32][]string // rows that a scan shall find by what is joined to them
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

// farBytes is how far the position moves before it is looked at before its time: what lies behind it is kept as WAL,
// such as that of our own writes.
const farBytes = 64 << 20

// An idle position is persisted when it has moved this far, or after this time: writing it more often would itself be
// WAL.
const (
	idleBytes = 1 << 20
	idleTime  = 10 * time.Minute
)
