// Package replication reads a logical replication slot and turns its changes into work. It decides which rows to
// process, processes a few directly, and enqueues the rest as tasks. The tasks and the position are durable before the
// server may remove the WAL.
//
// Its promise: the slot's confirmed position never passes the LSN checkpoint, and the checkpoint never passes what is
// enqueued or done. A recreated slot, a missing publication and a server restored to an earlier moment break that. They
// are detected before streaming continues, and answered by a new slot and a scan of every pipeline, or by a refusal.
package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// Options configure a Stream. The first group is required unless a field allows nil.
type Options struct {
	Slot  string
	Queue *queue.Queue
	// connects directly to the server, with the session settings of package database
	DB   *pgxpool.Pool
	Line *database.Line                                    // connection for enqueues; nil: DB
	Dial func(ctx context.Context) (*pgconn.PgConn, error) // opens a replication connection with the same settings
	Log  *slog.Logger

	StopOnLost bool // refuse instead of recreating a lost slot
	// create slots with failover, so that standbys keep a copy (PostgreSQL 17+)
	Failover bool
	// Direct processes changes that need no task; nil: all are enqueued.
	Direct func(ctx context.Context, epoch int64, changes []queue.Change) (Directed, error)
	// Prioritise sets the lanes of changes about to be enqueued from their rows; nil: lanes stay as they are.
	Prioritise func(ctx context.Context, changes []queue.Change)
	// Owners finds the source rows for changes of joined rows. It is required if a pipeline has joins.
	Owners Owners
	// Enqueued receives changes that are durable in the queue, with the time they were taken from the stream; may be
	// nil.
	Enqueued func(ctx context.Context, changes []queue.Change, taken time.Time)
	// Asked receives the content of each message that requests a vector, and whether it was sent before this session
	// began. It must return at once and must not keep the content; nil: requests are ignored.
	Asked   func(content []byte, before bool)
	HintKey []byte                          // key that signs hints of transactions; nil: hints are ignored
	Repair  func(ctx context.Context) error // recreates a missing publication if the role may; nil: never
	// called before each session to set the current pipelines; may be nil
	Prepare      func(ctx context.Context) error
	OnReload     func()          // called when sidecars must reload, for example after a pause
	OnScan       func()          // called when changes requested scans: a busy table may do so in each batch
	OnRequest    func()          // called when a notification says that a pipeline is requested
	Heartbeat    time.Duration   // interval between looks at the catalog; 0: 10 s
	Keeper       *restart.Keeper // of the session's loops; nil: one of its own
	StandbyRetry time.Duration   // interval between attempts to take a held slot; 0: 3 s
}

// Stats counts the work of a Stream since it was created. Its fields may be read at any time.
type Stats struct {
	Connected atomic.Bool
	Streaming atomic.Bool // this sidecar holds the slot
	Standby   atomic.Bool // another sidecar held it at the last check, a moment ago
	Making    atomic.Bool // this sidecar is recreating the slot
	// since when it fails to stream, or does not stream steadily; nil: healthy, or another sidecar streams
	Trouble atomic.Pointer[Trouble]
	// transactions that block the creation of the slot, by any process; nil: unknown or none
	Blockers       atomic.Pointer[[]database.Blocker]
	Transactions   atomic.Int64
	Changes        atomic.Int64 // rows changed in published tables
	Bytes          atomic.Int64
	Made           atomic.Int64 // tasks
	Joined         atomic.Int64
	Direct         atomic.Int64 // changes processed directly
	Dropped        atomic.Int64 // updates that changed nothing
	OwnWrites      atomic.Int64 // UPDATEs that are our own write-backs
	TooLong        atomic.Int64 // changes left out because the key is longer than pipeline.MaxKey
	Replayed       atomic.Int64 // transactions received again after a restart
	Reconnects     atomic.Int64
	Gaps           atomic.Int64 // gaps answered by a new slot and a scan
	ReceivedLSN    atomic.Uint64
	DurableLSN     atomic.Uint64
	ServerLSN      atomic.Uint64
	LastMessageAt  atomic.Int64 // Unix nanoseconds
	Urgent         atomic.Int64 // hints of transactions, like the next two
	Low            atomic.Int64
	Skips          atomic.Int64
	Forged         atomic.Int64 // hints not made by our function
	Strange        atomic.Int64 // logical messages that cannot be ours: skipped
	Heartbeats     atomic.Int64 // failed looks at the catalog
	CatalogueScans atomic.Int64 // scans requested because a table changed in a way that is not in the WAL
}

// Directed is the outcome of direct processing.
type Directed struct {
	Left               []queue.Change // to be enqueued
	Done, Own, Dropped int
	Embedding          time.Duration // time spent waiting for embedders
}

// Trouble is why a Stream does not stream.
type Trouble struct {
	Since time.Time
	Err   error // the last error; nil: nothing failed yet, it only takes long
}

// Stream reads one slot while its Run method runs.
type Stream struct {
	o      Options
	stats  Stats
	routes atomic.Pointer[routing]

	// attempt streams until an error or the end of ctx; renew recreates the slot.
	attempt func(ctx context.Context) error
	renew   func(ctx context.Context, reason string) error

	said         time.Time    // last log entry about a slot that another process creates
	epoch        atomic.Int64 // of the streaming session; 0: none
	judged       judged       // what the last session found: a difference means that another process acted since
	routesStored atomic.Value // string: the last routeRows, to skip repeating it
}

// New returns a Stream that has no pipelines yet.
func New(o Options) *Stream {
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.StandbyRetry = cmp.Or(o.StandbyRetry, 3*time.Second)
	o.Keeper = cmp.Or(o.Keeper, restart.New(o.Log))
	s := &Stream{o: o}
	s.attempt, s.renew = s.session, s.remake
	s.routes.Store(&routing{})
	return s
}

// Stats returns the live counters.
func (s *Stream) Stats() *Stats { return &s.stats }

// Kind is the kind of action that a FatalError needs from the user.
type Kind int

// The kinds of fatal errors.
const (
	NotSetUp    Kind = iota // the slot has no checkpoint
	Conflict                // the slot belongs to another user or database
	Lost                    // there is a gap, and recreating the slot is not allowed
	ReadOnly                // the server is read-only
	OtherServer             // the data came from another server
)

// A FatalError means that the stream must not continue until a user has acted.
type FatalError struct {
	Kind   Kind
	Reason string
	Way    string // a hint
}

func (e *FatalError) Error() string { return e.Reason }

// gapError means that the slot may not cover all changes since the checkpoint.
type gapError struct{ reason string }

func (e *gapError) Error() string { return e.reason }

// Run streams until ctx ends. It reconnects after errors and stands by while another sidecar holds the slot. It returns
// nil when ctx ended, a *FatalError, or a *restart.Error after a panic.
func (s *Stream) Run(ctx context.Context) error {
	const shortest, longest = 100 * time.Millisecond, 1500 * time.Millisecond
	pause := shortest
	var wedge wedge
	for {
		began := time.Now()
		s.stats.Trouble.CompareAndSwap(nil, &Trouble{Since: began})
		err := s.attempt(ctx)
		s.epoch.Store(0)
		s.stats.Connected.Store(false)
		s.stats.Streaming.Store(false)
		s.stats.Standby.Store(standby(err))
		if ctx.Err() != nil {
			return nil
		}
		err = wedge.judge(err, s.stats.DurableLSN.Load())
		if gap, ok := errors.AsType[*gapError](err); ok {
			if err = s.recover(ctx, gap); err == nil {
				s.stats.Trouble.Store(nil)
				continue
			}
			s.stats.Standby.Store(standby(err))
		}
		var (
			fatal    *FatalError
			panicked *restart.Error
		)
		switch {
		case errors.As(err, &panicked):
			s.trouble(err)
			return panicked // the supervisor restarts the stream
		case errors.As(err, &fatal):
			return fatal
		case standby(err):
			s.stats.Trouble.Store(nil)
			s.o.Log.DebugContext(ctx, "standing by", "slot", s.o.Slot)
			if !wait(ctx, s.o.StandbyRetry) {
				return nil
			}
			continue
		default:
			s.o.Log.WarnContext(ctx, "replication interrupted", "slot", s.o.Slot, "error", err)
			s.trouble(err)
		}
		s.stats.Reconnects.Add(1)
		if time.Since(began) > longest {
			pause = shortest
		}
		if !wait(ctx, pause) {
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// standby reports whether an attempt ended because another sidecar holds the slot.
func standby(err error) bool {
	return errors.Is(err, slot.ErrBusy) || errors.Is(err, queue.ErrEpochLost)
}

// trouble records why the stream was interrupted or could not start.
func (s *Stream) trouble(err error) {
	t := &Trouble{Since: time.Now(), Err: err}
	if before := s.stats.Trouble.Load(); before != nil {
		t.Since = before.Since
	}
	s.stats.Trouble.Store(t)
}

// steady clears the trouble when the session has lasted for a while. A session that keeps failing at the same place
// does not clear it. Each saved position clears it too.
func (ses *session) steady(ctx context.Context) error {
	const enough = 3 * time.Second
	if wait(ctx, enough) {
		ses.s.stats.Trouble.Store(nil)
	}
	return nil
}

// wait pauses for about d. It returns false when ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	return sleep.For(ctx, sleep.Between(d-d/10, d+d/10))
}

// wedge counts how often the server failed to continue from the same position.
type wedge struct {
	at    uint64
	times int
}

// maxTries is the number of failures at one position before it counts as a gap.
const maxTries = 6

// undecodedError is an error that the server sent in place of the next message.
type undecodedError struct{ *pgconn.PgError }

func (e *undecodedError) Unwrap() error { return e.PgError }

// judge turns an error that the server repeats for the same WAL into a *gapError: a value that is too large for a
// message or has no equivalent in UTF-8, a missing WAL file, a publication that did not exist when the change was made.
// Only a new slot gets past it. Errors of our own statements do not count: a new slot would not help and would lose
// changes.
func (w *wedge) judge(err error, at uint64) error {
	pg, ok := errors.AsType[*undecodedError](err)
	if !ok || !forGood(pg.Code) {
		if err == nil || !errors.Is(err, slot.ErrBusy) {
			*w = wedge{}
		}
		return err
	}
	if at != w.at {
		*w = wedge{at: at}
	}
	if w.times++; w.times < maxTries {
		return err
	}
	*w = wedge{}
	return &gapError{fmt.Sprintf("the server cannot send what comes after %s: %s (SQLSTATE %s)", pglogrepl.LSN(at),
		pg.Message, pg.Code)}
}

// forGood reports whether an error of the server for the next message is likely to repeat.
func forGood(code string) bool {
	return pgerrcode.IsDataException(code) || pgerrcode.IsProgramLimitExceeded(code) || pgerrcode.IsInternalError(code) ||
		slices.Contains([]string{pgerrcode.UndefinedFile, pgerrcode.UndefinedObject, pgerrcode.ObjectNotInPrerequisiteState},
			code)
}

// recover answers a gap with a new slot and a scan of every pipeline.
func (s *Stream) recover(ctx context.Context, gap *gapError) error {
	if s.o.StopOnLost {
		lost := &refusal.LostError{Slot: s.o.Slot, Reason: gap.reason}
		return &FatalError{Kind: Lost, Reason: lost.Error(), Way: wording.Joined(lost.Hints())}
	}
	s.o.Log.WarnContext(ctx, "gap found: creating a new slot and comparing all rows", "slot", s.o.Slot, "reason",
		gap.reason)
	if err := s.renew(ctx, gap.reason); err != nil {
		return fmt.Errorf("recreate the slot: %w", err)
	}
	s.stats.Gaps.Add(1)
	if s.o.OnReload != nil {
		s.o.OnReload()
	}
	return nil
}

type position struct {
	received pglogrepl.LSN // the last byte seen
	durable  pglogrepl.LSN // the last committed checkpoint
}
