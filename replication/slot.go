package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// slotState is what must agree before a stream may go on.
type slotState struct {
	LSN                   pglogrepl.LSN
	SystemID              string
	Timeline              int32
	Publication           string
	PublicationOID        uint32
	Epoch                 int64
	CurrentPublicationOID *uint32
	SlotExists            bool
	Plugin                *string
	SameDatabase          *bool
	Active                bool
	ActivePID             *int32
	ConfirmedFlushLSN     *pglogrepl.LSN
	WalStatus             string
	Failover              bool // standbys keep a copy of the slot
	Holder                *string
	HolderAddress         *string
	WalEnd                pglogrepl.LSN
	Standby               bool
	Version               int // of the server, as server_version_num
}

func (s *Stream) slotState(ctx context.Context) (slotState, error) {
	var st slotState
	err := s.o.DB.QueryRow(ctx, sqlfiles.Query("slot_state"), pgx.StrictNamedArgs{"slot": s.o.Slot}).Scan(
		&st.LSN, &st.SystemID, &st.Timeline, &st.Publication, &st.PublicationOID, &st.Epoch, &st.CurrentPublicationOID,
		&st.SlotExists, &st.Plugin, &st.SameDatabase, &st.Active, &st.ActivePID, &st.ConfirmedFlushLSN, &st.WalStatus,
		&st.Failover,
		&st.Holder, &st.HolderAddress, &st.WalEnd, &st.Standby, &st.Version)
	if errors.Is(err, pgx.ErrNoRows) {
		return st, &FatalError{
			Kind:   NotSetUp,
			Reason: fmt.Sprintf("slot %q has no LSN checkpoint in this database", s.o.Slot),
			Way:    "run `embedsidecar init` first, or check --slot and --database-url",
		}
	}
	if err != nil {
		return st, fmt.Errorf("look at slot %q: %w", s.o.Slot, err)
	}
	return st, nil
}

// standby returns errStandby if somebody else holds the slot: whoever streams from it looks after it. It takes no
// connection that streams.
func (s *Stream) standby(ctx context.Context, st slotState) error {
	if !st.Active || st.Plugin == nil || *st.Plugin != "pgoutput" || st.SameDatabase == nil || !*st.SameDatabase {
		return nil
	}
	const again = time.Minute // a slot that is being made is no slot yet: that is said again and again
	level := slog.LevelInfo
	if s.stats.Standby.Load() && (st.ConfirmedFlushLSN != nil || time.Since(s.said) < again) {
		level = slog.LevelDebug
	} else {
		s.said = time.Now()
	}
	log := s.o.Log.With("slot", s.o.Slot, "pid", value(st.ActivePID), "application", value(st.Holder), "address",
		value(st.HolderAddress))
	if st.ConfirmedFlushLSN != nil {
		s.stats.Blockers.Store(nil)
		log.Log(ctx, level, "slot held by another process")
		return errStandby
	}
	list, err := database.Blockers(ctx, s.o.DB, "")
	if err != nil { // the slot is being made all the same, and by whom it was held up a moment ago is what is known
		log.DebugContext(ctx, "no answer for whom the slot waits", "error", err)
		return errStandby
	}
	s.stats.Blockers.Store(&list)
	if level > slog.LevelDebug {
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "slot being made by another process, which waits for open transactions", "transactions",
		strings.Join(database.Named(list), "; "))
	return errStandby
}

// check compares slot, publication, checkpoint and server. It returns a *gapError if changes may be missing, a
// *FatalError if the slot is not one we may use.
func (s *Stream) check(ctx context.Context, st slotState, system pglogrepl.IdentifySystemResult) error {
	switch {
	case st.Standby:
		return &FatalError{
			Kind:   Standby,
			Reason: "the server is a standby: it cannot hold the queue",
			Way:    "point --database-url at the primary",
		}
	case st.SlotExists && st.Plugin != nil && *st.Plugin != "pgoutput":
		return &FatalError{
			Kind:   Conflict,
			Reason: fmt.Sprintf("slot %q belongs to the output plugin %q", s.o.Slot, *st.Plugin),
			Way:    "choose another name with --slot",
		}
	case st.SlotExists && (st.SameDatabase == nil || !*st.SameDatabase):
		return &FatalError{
			Kind:   Conflict,
			Reason: fmt.Sprintf("slot %q is a slot of another database", s.o.Slot),
			Way:    "if this one is a copy of that: embedsidecar init --adopt --slot NAME, with another name; otherwise choose another name with --slot",
		}
	case st.SystemID != system.SystemID:
		return &FatalError{
			Kind:   OtherServer,
			Reason: fmt.Sprintf("%s (system id %s, it was %s)", health.OtherServer, system.SystemID, st.SystemID),
			Way:    "if this copy shall live on its own, run `embedsidecar init --adopt`: it makes a new slot and compares all rows",
		}
	case st.CurrentPublicationOID == nil:
		return s.republish(ctx, st)
	case *st.CurrentPublicationOID != st.PublicationOID:
		return &gapError{fmt.Sprintf("publication %q was dropped and made again", st.Publication)}
	case !st.SlotExists:
		return &gapError{"the slot does not exist"}
	case st.WalStatus == "lost":
		return &gapError{"the slot is lost: the server removed WAL it still needed (wal_status=lost)"}
	case st.ConfirmedFlushLSN != nil && *st.ConfirmedFlushLSN > st.LSN:
		return &gapError{fmt.Sprintf("the slot was moved to %s, past the checkpoint %s", st.ConfirmedFlushLSN, st.LSN)}
	case st.LSN > st.WalEnd:
		return &gapError{fmt.Sprintf("the checkpoint %s is ahead of the server's WAL end %s: the server went back in time",
			st.LSN, st.WalEnd)}
	case st.Timeline != system.Timeline && st.Failover:
		// A standby was promoted that had a copy of the slot: PostgreSQL drops such a copy itself when it could not decode
		// all that comes. Whoever takes the slot now ends what was under way on the old timeline.
		s.o.Log.InfoContext(ctx, "server changed its timeline, and the slot came along", "slot", s.o.Slot, "from",
			st.Timeline, "to", system.Timeline)
	case st.Timeline != system.Timeline:
		return &gapError{fmt.Sprintf("the server moved from timeline %d to %d", st.Timeline, system.Timeline)}
	}
	return nil
}

// republish makes a missing publication again, if the role may. What changed while it was missing is a gap either way.
func (s *Stream) republish(ctx context.Context, st slotState) error {
	if s.o.Repair == nil {
		return fmt.Errorf("publication %q is missing: as the tables' owner, run `embedsidecar init`", st.Publication)
	}
	if err := s.o.Repair(ctx); err != nil {
		return fmt.Errorf("publication %q is missing and could not be made again: %w", st.Publication, err)
	}
	return &gapError{fmt.Sprintf("publication %q was missing", st.Publication)}
}

// remake drops what is left of the slot, makes it anew and asks for a scan of every pipeline. A crash in its middle
// leaves a slot whose position is not the checkpoint's: the next start finds that gap and does it again.
func (s *Stream) remake(ctx context.Context, reason string) error {
	conn, err := s.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connect for a new slot: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	st, err := s.slotState(ctx)
	if err != nil {
		return err
	}
	if st.CurrentPublicationOID == nil {
		// A slot made before its publication cannot read what happens between.
		return fmt.Errorf("publication %q is missing: as the tables' owner, run `embedsidecar init`", st.Publication)
	}
	// The server may not be the one that workers have read from. This is committed before the scans are asked for, which
	// wait for every transaction that has begun by then: whoever began to write before he could see it is among them.
	if _, err := s.voidLeases(ctx, s.o.DB); err != nil {
		return err
	}
	if st.SlotExists {
		// A slot name holds only lower case letters, digits and underscores.
		_, err := conn.Exec(ctx, fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", s.o.Slot)).ReadAll()
		if slotBusy(err) {
			return errStandby
		}
		if err != nil {
			return fmt.Errorf("drop slot %q: %w", s.o.Slot, err)
		}
	}
	s.stats.Making.Store(true)
	defer s.stats.Making.Store(false)
	told := s.tellBlockers(ctx)
	point, err := s.createSlot(ctx, conn, s.o.Failover && st.Version >= version17)
	told()
	if err != nil {
		return fmt.Errorf("create slot %q: %w", s.o.Slot, err)
	}
	tx, err := s.o.DB.Begin(ctx)
	if err != nil {
		return fmt.Errorf("record the new slot: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, sqlfiles.Query("move_checkpoint"),
		pgx.StrictNamedArgs{
			"slot": s.o.Slot, "lsn": point.String(), "system_id": system.SystemID,
			"timeline": system.Timeline,
		})
	if err != nil {
		return fmt.Errorf("record the new slot: %w", err)
	}
	var ids []int32
	err = tx.QueryRow(ctx, "SELECT array_agg(pipeline_id) FROM embedsidecar.pipeline WHERE slot_name = $1",
		s.o.Slot).Scan(&ids)
	if err != nil {
		return fmt.Errorf("record the new slot: %w", err)
	}
	if err := queue.RequestScan(ctx, tx, reason, ids); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("record the new slot: %w", err)
	}
	s.o.Queue.Wake(ids...)
	return nil
}

// tellBlockers says whom the making of the slot waits for, until the function it returns is called. Who it was last
// is known until the slot is read.
func (s *Stream) tellBlockers(ctx context.Context) (stop func()) {
	watching, cancel := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		database.WatchBlockers(watching, s.o.DB, func(list []database.Blocker) {
			s.stats.Blockers.Store(&list)
			s.o.Log.WarnContext(watching, "slot creation waits for open transactions", "slot", s.o.Slot, "transactions",
				strings.Join(database.Named(list), "; "))
		})
	})
	return func() {
		cancel()
		watched.Wait()
	}
}

// createSlot makes the slot and returns where it begins. It does so in SQL: the replication command of pglogrepl
// knows no failover.
func (s *Stream) createSlot(ctx context.Context, conn *pgconn.PgConn, failover bool) (pglogrepl.LSN, error) {
	// The server waits for running transactions as for locks: with our lock_timeout a busy one would never make a slot.
	const begin = "SET lock_timeout = 0; SELECT lsn FROM pg_create_logical_replication_slot('%s', 'pgoutput'%s)"
	kept := ""
	if failover {
		kept = ", false, false, true"
	}
	// A slot name holds only lower case letters, digits and underscores.
	results, err := conn.Exec(ctx, fmt.Sprintf(begin, s.o.Slot, kept)).ReadAll()
	if err != nil {
		return 0, err
	}
	if len(results) != 2 || len(results[1].Rows) != 1 { //nolint:mnd // one for each statement
		return 0, errors.New("the server gave no position")
	}
	return pglogrepl.ParseLSN(string(results[1].Rows[0][0]))
}

// version17 is the first that lets standbys keep a copy of a slot.
const version17 = 170000

// quoteSlot writes a slot name for the replication grammar. Slot names hold only lower case letters, digits and
// underscores.
func quoteSlot(name string) string { return pgx.Identifier{name}.Sanitize() }

func value[T any](p *T) any {
	if p == nil {
		return ""
	}
	return *p
}
