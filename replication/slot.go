package replication

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// judged is what the session found out about the slot.
type judged struct {
	epoch int64
	gap   slot.Condition // found at the start; Good: none
}

// state reads the slot and its checkpoint.
func (s *Stream) state(ctx context.Context) (slot.State, error) {
	st, err := slot.Read(ctx, s.o.DB, s.o.Slot)
	if err == nil && !st.Recorded {
		err = &FatalError{
			Kind:   NotSetUp,
			Reason: fmt.Sprintf("slot %q has no LSN checkpoint in this database", s.o.Slot),
			Way:    "run `embedsidecar init` first, or check --slot and --database-url",
		}
	}
	return st, err
}

// standby returns slot.ErrBusy if another process holds the slot: the holder maintains it. It does not use the
// replication connection.
func (s *Stream) standby(ctx context.Context, st *slot.State) error {
	if !st.Active || !st.Ours() {
		return nil
	}
	const again = time.Minute // a slot being created cannot stream yet: the log repeats this
	level := slog.LevelInfo
	if s.stats.Standby.Load() && (!st.Making() || time.Since(s.said) < again) {
		level = slog.LevelDebug
	} else {
		s.said = time.Now()
	}
	log := s.o.Log.With("slot", s.o.Slot, "pid", st.PID, "application", st.Application, "address", st.Address)
	if !st.Making() {
		s.stats.Blockers.Store(nil)
		log.Log(ctx, level, "slot held by another process")
		return slot.ErrBusy
	}
	list, err := st.Blockers(ctx, s.o.DB)
	if err != nil { // the slot is still being created; keep the blockers found before
		log.DebugContext(ctx, "could not read which transactions block the slot", "error", err)
		return slot.ErrBusy
	}
	s.stats.Blockers.Store(&list)
	if level > slog.LevelDebug {
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "slot being created by another process, which waits for open transactions", "transactions",
		strings.Join(database.Named(list), "; "))
	return slot.ErrBusy
}

// check compares slot, publication, checkpoint and server. It returns a *gapError if changes may be missing, and a
// *FatalError if the slot must not be used.
func (s *Stream) check(ctx context.Context, st *slot.State, system pglogrepl.IdentifySystemResult) error {
	v := st.Judge(system)
	switch {
	case v.Condition == slot.Good && st.Timeline != system.Timeline:
		// A promoted standby had a copy of the slot. PostgreSQL drops such a copy itself if it cannot decode everything
		// that follows. Taking the slot ends all work of the old timeline.
		s.o.Log.InfoContext(ctx, "server changed its timeline and kept the slot", "slot", s.o.Slot, "from",
			st.Timeline, "to", system.Timeline)
		return nil
	case v.Condition == slot.Good:
		return nil
	case v.Condition == slot.Awaited: // until the setting is changed
		return v.Err()
	case v.Condition.Gap() && st.PublicationNow == 0:
		return s.republish(ctx, st)
	case v.Condition.Gap():
		s.judged.gap = v.Condition
		return &gapError{v.Reason}
	}
	return &FatalError{Kind: kindOf(v.Condition), Reason: v.Reason, Way: wording.Joined(v.Hint)}
}

// kindOf returns the kind of fatal error for a condition that needs a user.
func kindOf(c slot.Condition) Kind {
	switch c {
	case slot.OnStandby:
		return ReadOnly
	case slot.OtherServer:
		return OtherServer
	default:
		return Conflict
	}
}

// republish recreates a missing publication if the role may. Changes made while it was missing are a gap either way.
func (s *Stream) republish(ctx context.Context, st *slot.State) error {
	if s.o.Repair == nil {
		return fmt.Errorf("publication %q is missing: as the tables' owner, run `embedsidecar init`", st.Publication)
	}
	if err := s.o.Repair(ctx); err != nil {
		return fmt.Errorf("publication %q is missing and could not be recreated: %w", st.Publication, err)
	}
	return &gapError{fmt.Sprintf("publication %q was missing", st.Publication)}
}

// remake drops the rest of the slot, recreates it and requests a scan of every pipeline.
func (s *Stream) remake(ctx context.Context, reason string) error {
	conn, err := s.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connect for a new slot: %w", err)
	}
	defer closeSoon(ctx, conn)
	system, err := identify(ctx, conn)
	if err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	st, err := s.state(ctx)
	if err != nil {
		return err
	}
	// Another sidecar or an init is recreating the slot, or did: then it exists and is past the checkpoint.
	remade := s.judged.gap != slot.Moved && st.Judge(system).Condition == slot.Moved
	if st.Epoch != s.judged.epoch || remade {
		return slot.ErrBusy
	}
	if st.PublicationNow == 0 {
		// A slot older than its publication cannot decode the changes in between.
		return fmt.Errorf("publication %q is missing: as the tables' owner, run `embedsidecar init`", st.Publication)
	}
	s.stats.Making.Store(true)
	defer s.stats.Making.Store(false)
	m := slot.Maker{
		DB: s.o.DB, Conn: conn, Server: system, Failover: s.o.Failover, Log: s.o.Log,
		Tell: func(list []database.Blocker) { s.stats.Blockers.Store(&list) }, // kept until the slot is read
	}
	ids, err := m.Make(ctx, &st, reason)
	if err != nil {
		return err
	}
	s.o.Queue.Wake(ids...)
	return nil
}
