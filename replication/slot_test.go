package replication

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// recorded is the state of a slot that may be streamed from.
func recorded(change func(*slot.State)) *slot.State {
	confirmed := pglogrepl.LSN(90)
	st := &slot.State{
		Name: "docs", Here: "app", Exists: true, Plugin: slot.Plugin, Database: "app", ConfirmedFlushLSN: &confirmed,
		WALStatus: "reserved", Recorded: true, Checkpoint: 100, SystemID: "7", Timeline: 2, Publication: "pub",
		PublicationOID: 5, PublicationNow: 5, WALEnd: 200, ServerID: "7",
	}
	change(st)
	return st
}

// A gap is answered by a new slot and a scan, what is somebody else's by a person, and nothing by going on.
func TestP2_WhatASlotCannotCoverIsAGap(t *testing.T) {
	t.Parallel()
	const good, gap = Kind(-1), Kind(-2)
	for name, c := range map[string]struct {
		change func(*slot.State)
		want   Kind
	}{
		"sound":                       {func(*slot.State) {}, good},
		"a standby with it, promoted": {func(s *slot.State) { s.Timeline, s.Failover = 1, true }, good},
		"a standby without it":        {func(s *slot.State) { s.Timeline = 1 }, gap},
		"it is gone":                  {func(s *slot.State) { s.Exists = false }, gap},
		"it is lost":                  {func(s *slot.State) { s.WALStatus = "lost" }, gap},
		"another publication":         {func(s *slot.State) { s.PublicationNow = 6 }, gap},
		"the server went back":        {func(s *slot.State) { s.WALEnd = 50 }, gap},
		"another plugin's":            {func(s *slot.State) { s.Plugin = "wal2json" }, Conflict},
		"another database's":          {func(s *slot.State) { s.Database = "other" }, Conflict},
		"another server's":            {func(s *slot.State) { s.SystemID = "8" }, OtherServer},
		"a server that cannot write":  {func(s *slot.State) { s.Standby = true }, ReadOnly},
	} {
		s := New(Options{Slot: "docs", Log: slog.New(slog.DiscardHandler)})
		err := s.check(t.Context(), recorded(c.change), pglogrepl.IdentifySystemResult{SystemID: "7", Timeline: 2})
		_, isGap := errors.AsType[*gapError](err)
		fatal, isFatal := errors.AsType[*FatalError](err)
		switch {
		case isFatal && fatal.Kind == c.want && fatal.Way != "" && fatal.Error() != "":
		case isGap && c.want == gap && err.Error() != "":
		case err == nil && c.want == good:
		default:
			t.Errorf("%s: %v", name, err)
		}
	}
}

// P4: while commits could wait for the stream as for a standby, it does not begin. That is no gap, and does not end the
// program.
func TestP4_TheStreamIsNoStandbyThatCommitsWaitFor(t *testing.T) {
	t.Parallel()
	s := New(Options{Slot: "docs", Log: slog.New(slog.DiscardHandler)})
	err := s.check(t.Context(), recorded(func(s *slot.State) { s.StandbyNames = "*" }),
		pglogrepl.IdentifySystemResult{SystemID: "7", Timeline: 2})
	_, isGap := errors.AsType[*gapError](err)
	_, isFatal := errors.AsType[*FatalError](err)
	if err == nil || isGap || isFatal || !strings.Contains(err.Error(), "synchronous_standby_names") {
		t.Errorf("%v (gap %t, fatal %t)", err, isGap, isFatal)
	}
}

// A publication that is missing is made again where the role may, and is a gap all the same.
func TestRepublish(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		repair func(context.Context) error
		want   string
		gap    bool
	}{
		"nobody may": {nil, "as the tables' owner", false},
		"it cannot":  {func(context.Context) error { return errors.New("not the owner") }, "could not be recreated", false},
		"it may":     {func(context.Context) error { return nil }, `publication "pub" was missing`, true},
	} {
		s := New(Options{Slot: "docs", Log: slog.New(slog.DiscardHandler), Repair: c.repair})
		err := s.check(t.Context(), recorded(func(s *slot.State) { s.PublicationNow = 0 }),
			pglogrepl.IdentifySystemResult{SystemID: "7", Timeline: 2})
		if _, isGap := errors.AsType[*gapError](err); isGap != c.gap || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Who stands by says so once, and takes no connection; a slot that nobody holds, or somebody else's, is judged.
func TestStandby_LeavesTheSlotToWhoHoldsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := New(Options{Slot: "docs", Log: slog.New(slog.NewTextHandler(&out, nil))})
		s.stats.Blockers.Store(&[]database.Blocker{})
		held := recorded(func(st *slot.State) { st.Active, st.PID, st.Application = true, 4711, "embedsidecar/two" })
		for range 3 {
			if err := s.standby(t.Context(), held); !errors.Is(err, slot.ErrBusy) {
				t.Fatal(err)
			}
			s.stats.Standby.Store(true)
			<-time.After(time.Hour)
		}
		if n := strings.Count(out.String(), "slot held by another process"); n != 1 ||
			!strings.Contains(out.String(), "pid=4711") || s.stats.Blockers.Load() != nil {
			t.Errorf("said %d times:\n%s", n, out.String())
		}
	})
	s := New(Options{Slot: "docs", Log: slog.New(slog.DiscardHandler)})
	for name, change := range map[string]func(*slot.State){
		"nobody holds it":    func(*slot.State) {},
		"another database's": func(s *slot.State) { s.Active, s.Database = true, "other" },
		"of another plugin":  func(s *slot.State) { s.Active, s.Plugin = true, "wal2json" },
	} {
		if err := s.standby(t.Context(), recorded(change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
