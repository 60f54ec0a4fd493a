// Package replication turns the WAL into changes to be looked at: it reads a logical replication slot, decides which
// rows must be looked at, has the few that are quick worked at once, and makes the others tasks, durable together with
// its position, before it lets the server forget anything.
//
// Its promise: the slot's confirmed position never passes the LSN checkpoint, and the checkpoint never passes what is
// in the queue or done. Whatever breaks that (a recreated slot, a publication that was missing, a server restored to an
// earlier moment) is found before streaming goes on and answered by a new slot and a scan of every pipeline, or by a
// refusal. It never goes on as if nothing had happened.
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

// Options are what a Stream needs. What may be nil says so; the rest of the first group is required.
type Options struct {
	Slot  string
	Queue *queue.Queue
	// straight to the server, with the session settings of package database
	DB   *pgxpool.Pool
	Line *database.Line                                    // over which changes are enqueued; nil: over DB
	Dial func(ctx context.Context) (*pgconn.PgConn, error) // opens a replication connection with the same settings
	Log  *slog.Logger

	StopOnLost bool // refuse instead of making a lost slot again
	// a recreated slot is one that standbys keep a copy of, from PostgreSQL 17 on
	Failover bool
	// Direct works changes at once that need no task; nil: all are enqueued.
	Direct func(ctx context.Context, epoch int64, changes []queue.Change) (Directed, error)
	// Prioritise gives changes that are to be enqueued the lanes that their rows say they are in; nil: none say so.
	Prioritise func(ctx context.Context, changes []queue.Change)
	// Owners finds the rows of changes of joined rows. Without it no pipeline may join any.
	Owners Owners
	// Enqueued is told of changes that are durable in the queue, and of when they were taken from the stream; nil: nobody
	// wants to know.
	Enqueued func(ctx context.Context, changes []queue.Change, taken time.Time)
	// Asked is given the content of each message by which somebody asks for a vector, and whether it was sent before this
	// session of the stream began. It returns at once, and keeps nothing of what it is given. nil: nobody answers.
	Asked   func(content []byte, before bool)
	HintKey []byte                          // that hints of transactions are signed with; nil: none is heeded
	Repair  func(ctx context.Context) error // makes a missing publication again, if the role may; nil: never
	// called before each session: hands in the pipelines as they are now; may be nil
	Prepare      func(ctx context.Context) error
	OnReload     func()          // called when what sidecars must load again changed: a pause, too
	OnRequest    func()          // called when somebody says that a pipeline is asked for
	Heartbeat    time.Duration   // between two looks at the catalogue; 0: 10 s
	Keeper       *restart.Keeper // of the session's loops; nil: one of its own
	StandbyRetry time.Duration   // between two tries to take a slot that somebody else holds; 0: 3 s
}

// Stats counts what a Stream did since it was made. Its fields may be read at any time.
type Stats struct {
	Connected atomic.Bool
	Streaming atomic.Bool // this sidecar holds the slot
	Standby   atomic.Bool // another one holds it, and the last look at that was a moment ago
	Making    atomic.Bool // the slot is being recreated, by this sidecar
	// since when it tries to stream and does not, or not for long; nil: all is well, or another one streams
	Trouble atomic.Pointer[Trouble]
	// whom the making of the slot waits for, by whomever; nil: nobody is known
	Blockers       atomic.Pointer[[]database.Blocker]
	Transactions   atomic.Int64
	Changes        atomic.Int64 // rows changed in published tables
	Bytes          atomic.Int64
	Made           atomic.Int64 // tasks
	Joined         atomic.Int64
	Direct         atomic.Int64 // changes that were worked at once
	Dropped        atomic.Int64 // updates that changed nothing
	OwnWrites      atomic.Int64 // updates of write-backs of ours
	TooLong        atomic.Int64 // changes of rows whose key is longer than pipeline.MaxKey: left out
	Replayed       atomic.Int64 // transactions that came again after a restart
	Reconnects     atomic.Int64
	Gaps           atomic.Int64 // times a gap was answered by a new slot and a scan
	ReceivedLSN    atomic.Uint64
	DurableLSN     atomic.Uint64
	ServerLSN      atomic.Uint64
	LastMessageAt  atomic.Int64 // Unix nanoseconds
	Urgent         atomic.Int64 // hints of transactions, and the next two
	Low            atomic.Int64
	Skips          atomic.Int64
	Forged         atomic.Int64 // hints that our function has not made
	Strange        atomic.Int64 // logical messages that cannot be ours: they were read past
	Heartbeats     atomic.Int64 // looks at the catalogue that failed
	CatalogueScans atomic.Int64 // scans asked for because a table changed in a way the WAL does not tell
}

// Directed is what became of changes that were to be worked at once.
type Directed struct {
	Left               []queue.Change // to be enqueued
	Done, Own, Dropped int
	Embedding          time.Duration // that was spent waiting for embedders
}

// Trouble is what keeps a Stream from streaming.
type Trouble struct {
	Since time.Time
	Err   error // the last; nil: nothing has failed yet, it only takes its time
}

// Stream reads one slot while its Run method runs.
type Stream struct {
	o      Options
	stats  Stats
	routes atomic.Pointer[routing]

	// attempt streams until something ends it, and renew recreates the slot.
	attempt func(ctx context.Context) error
	renew   func(ctx context.Context, reason string) error

	said         time.Time    // when a slot that another one makes was told of last
	epoch        atomic.Int64 // of the session that streams; 0: none does
	judged       judged       // what the last session found: something else means that another process acted since
	acknowledged atomic.Value // string: the last acknowledgement, so that it is not said twice
}

// New returns a Stream that has no pipelines yet.
func New(o Options) *Stream {
	o.Heartbeat = cmp.Or(o.Heartbeat, 10*time.Second)
	o.StandbyRetry = cmp.Or(o.StandbyRetry, 3*time.Second)
	if o.Keeper == nil {
		o.Keeper = restart.New(o.Log)
	}
	s := &Stream{o: o}
	s.attempt, s.renew = s.session, s.remake
	s.routes.Store(&routing{})
	return s
}

// Stats returns the live counters.
func (s *Stream) Stats() *Stats { return &s.stats }

// Kind tells what sort of act a FatalError asks for.
type Kind int

// The kinds of fatal errors.
const (
	NotSetUp    Kind = iota // the slot has no checkpoint
	Conflict                // the slot is somebody else's
	Lost                    // there is a gap, and recreating the slot was not allowed
	ReadOnly                // the server cannot write
	OtherServer             // the data came from another server
)

// A FatalError means that the stream must not go on until a person has acted.
type FatalError struct {
	Kind   Kind
	Reason string
	Way    string // the way out
}

func (e *FatalError) Error() string { return e.Reason }

// Hint returns the way out.
func (e *FatalError) Hint() string { return e.Way }

// gapError means that the slot cannot cover everything since the checkpoint.
type gapError struct{ reason string }

func (e *gapError) Error() string { return e.reason }

// Run streams until ctx ends, through reconnects, standing by while another sidecar holds the slot. It returns nil
// when asked to stop, or a *FatalError.
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
			return panicked // anyone who keeps this going begins it again
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

// standby reports whether an attempt ended because another sidecar has the slot.
func standby(err error) bool {
	return errors.Is(err, slot.ErrBusy) || errors.Is(err, queue.ErrEpochLost)
}

// trouble notes why the stream was interrupted, or could not begin.
func (s *Stream) trouble(err error) {
	t := &Trouble{Since: time.Now(), Err: err}
	if before := s.stats.Trouble.Load(); before != nil {
		t.Since = before.Since
	}
	s.stats.Trouble.Store(t)
}

// steady ends the trouble when the session has lasted for a while. One that fails again at once, as what comes next
// makes it, does not end it; nor need it: whatever is made durable does.
func (ses *session) steady(ctx context.Context) error {
	const enough = 3 * time.Second
	if wait(ctx, enough) {
		ses.s.stats.Trouble.Store(nil)
	}
	return nil
}

// wait pauses for about d; it returns false when ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	return sleep.For(ctx, sleep.Between(d-d/10, d+d/10))
}

// wedge counts how often the server refused to go on from the same place.
type wedge struct {
	at    uint64
	times int
}

// maxTries is how often it is asked to go on.
const maxTries = 6

// undecodedError is what the server says instead of the next message of the stream.
type undecodedError struct{ *pgconn.PgError }

func (e *undecodedError) Unwrap() error { return e.PgError }

// judge returns a *gapError instead of an error that the server gives each time it decodes what comes next: a value
// that is too large for a message, or that has no equivalent in UTF-8; a file of the WAL that is not there any more;
// a publication that was not there when the change was made. Nothing but a new slot gets past it. What a statement of
// ours was refused for is no such error: a new slot would not help, and lose what the old one keeps.
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

// forGood reports whether a server that refuses the next message so is likely to do it again.
func forGood(code string) bool {
	return pgerrcode.IsDataException(code) || pgerrcode.IsProgramLimitExceeded(code) || pgerrcode.IsInternalError(code) ||
		slices.Contains([]string{pgerrcode.UndefinedFile, pgerrcode.UndefinedObject, pgerrcode.ObjectNotInPrerequisiteState},
			code)
}

// recover answers a gap: a new slot, and a scan of every pipeline from there on.
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
	durable  pglogrepl.LSN // the checkpoint, as it was committed last
}
