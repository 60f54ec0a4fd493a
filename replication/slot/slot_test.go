package slot

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

var server = pglogrepl.IdentifySystemResult{SystemID: "7", Timeline: 2}

// sound is the state of a slot that somebody of role r streams from.
func sound() State {
	confirmed := pglogrepl.LSN(90)
	return State{
		Name: "docs", Here: "app", Exists: true, Plugin: Plugin, Database: "app", Active: true, PID: 4711, Application: "one",
		Role: "r", ConfirmedFlushLSN: &confirmed, WALStatus: "reserved", Recorded: true, Checkpoint: 100, SystemID: "7",
		Timeline: 2, Publication: "pub", PublicationOID: 5, PublicationNow: 5, WALEnd: 200, ServerID: "7", Version: 180000,
	}
}

// TestJudge: what a state means, in the order in which it must be asked: whose slot it is comes before what it lacks.
func TestJudge(t *testing.T) {
	t.Parallel()
	past := pglogrepl.LSN(101)
	for name, c := range map[string]struct {
		change func(*State)
		want   Condition
		reason string
		gap    bool
	}{
		"sound": {func(*State) {}, Good, "", false},
		"a standby": {func(s *State) {
			s.Standby, s.Exists = true, false
		}, OnStandby, "the server is a standby", false},
		"none": {func(s *State) {
			*s = State{Name: "docs", Here: "app"}
		}, Absent, `slot "docs" does not exist`, false},
		"of another database": {func(s *State) {
			s.Database, s.Plugin = "other", "wal2json"
		}, Elsewhere, `is of database "other", not of "app"`, false},
		"physical": {func(s *State) {
			s.Database, s.Plugin, s.Recorded = "", "", false
		}, Elsewhere, "is a physical one", false},
		"unknown": {func(s *State) {
			s.Recorded, s.Plugin = false, "wal2json"
		}, Unrecorded, `a slot "docs" that is not ours`, false},
		"another plugin": {func(s *State) {
			s.Plugin, s.SystemID = "wal2json", "8"
		}, OtherPlugin, `belongs to plugin "wal2json"`, false},
		"a copy": {func(s *State) {
			s.SystemID, s.Exists = "8", false
		}, OtherServer, "(system id 7, it was 8)", false},
		"a copy of one that was begun": {func(s *State) {
			s.SystemID, s.Begun = "8", true
		}, Interrupted, "interrupted", true},
		"a server that may choose the stream as the standby that commits wait for": {func(s *State) {
			s.StandbyNames, s.Exists = "FIRST 1 (near, *)", false
		}, Awaited, "synchronous_standby_names is 'FIRST 1 (near, *)'", false},
		"temporary": {func(s *State) {
			s.Temporary = true
		}, Temporary, "a temporary one of pid 4711 one of role r has its name", true},
		"begun": {func(s *State) {
			s.Begun, s.Exists = true, false
		}, Interrupted, "interrupted", true},
		"gone": {func(s *State) {
			s.Exists, s.PublicationNow = false, 0
		}, Gone, "the slot does not exist", true},
		"lost": {func(s *State) {
			s.WALStatus, s.PublicationNow = "lost", 6
		}, Lost, "wal_status=lost", true},
		"with two_phase": {func(s *State) {
			s.TwoPhase = true
		}, Altered, "two_phase", true},
		"without its publication": {func(s *State) {
			s.PublicationNow = 0
		}, Unpublished, `publication "pub" was missing`, true},
		"another publication of the name": {func(s *State) {
			s.PublicationNow = 6
		}, Republished, `publication "pub" was dropped and recreated`, true},
		"moved": {func(s *State) {
			s.ConfirmedFlushLSN = &past
		}, Moved, "moved to 0/65, past the checkpoint 0/64", true},
		"at the checkpoint": {func(s *State) {
			s.ConfirmedFlushLSN = &s.Checkpoint
		}, Good, "", false},
		"back in time": {func(s *State) {
			s.WALEnd = 99
		}, Ahead, "ahead of the server's WAL end 0/63", true},
		"promoted": {func(s *State) {
			s.Timeline = 1
		}, OtherTimeline, "from timeline 1 to 2", true},
		"promoted, with a copy of the slot": {func(s *State) {
			s.Timeline, s.Failover = 1, true
		}, Good, "", false},
		"being made": {func(s *State) {
			s.ConfirmedFlushLSN = nil
		}, Good, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sound()
			c.change(&s)
			v := s.Judge(server)
			if v.Condition != c.want || !strings.Contains(v.Reason, c.reason) || (v.Reason == "") != (c.want == Good) {
				t.Errorf("%v (%s), want %v with %q", v.Condition, v.Reason, c.want, c.reason)
			}
			if v.Condition.Gap() != c.gap {
				t.Errorf("a gap: %t, want %t", v.Condition.Gap(), c.gap)
			}
			if v.Condition.String() == "" {
				t.Error("it has no words")
			}
			err := v.Err()
			if refused := !c.gap && c.want != Good && c.want != Absent; refused != (err != nil) {
				t.Errorf("refused with %v, want an error: %t", err, refused)
			}
			if err != nil && (len(v.Hint) == 0 || err.Error() != v.Reason) {
				t.Errorf("refused with %v, and the ways out %q", err, v.Hint)
			}
		})
	}
}

// TestAwaits: a star stands for any session that streams, also ours. In the mode ANY that does no harm.
func TestAwaits(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]bool{
		"": false, "near": false, "near, far": false, "1 (near)": false, `FIRST 2 (near, "a*b")`: false,
		"*": true, `"*"`: true, " * ": true, "near,*": true, "1 (*)": true, "FIRST 1 (near, * )": true, "first 1(*)": true,
		"ANY 1 (*)": false, "any 2 (near, *)": false, "any_other, *": true,
	} {
		if got := Awaits(names); got != want {
			t.Errorf("%q: %t, want %t", names, got, want)
		}
	}
}

// TestJudge_TellsACopyItsWayOut: a database that was copied within its server must give its pipelines to a slot of its
// own, and one that has nothing set up just needs another name.
func TestJudge_TellsACopyItsWayOut(t *testing.T) {
	t.Parallel()
	s := sound()
	s.Database = "other"
	if hint := s.Judge(server).Hint; !strings.Contains(strings.Join(hint, "\n"), "init --adopt --slot embedsidecar_app") {
		t.Errorf("a copy: %q", hint)
	}
	s.Recorded = false
	if hint := s.Judge(server).Hint; len(hint) != 1 || !strings.Contains(hint[0], "--slot embedsidecar_app") {
		t.Errorf("a new one: %q", hint)
	}
}

// TestRenewal: init makes anew what nobody holds and what only a new slot answers; what the stream may answer is left
// to it, as it is told what to do about gaps.
func TestRenewal(t *testing.T) {
	t.Parallel()
	idle := func(change func(*State)) func(*State) { return func(s *State) { s.Active = false; change(s) } }
	lost := func(s *State) { s.WALStatus = "lost" }
	copied := func(s *State) { s.SystemID = "8" }
	for name, c := range map[string]struct {
		change func(*State)
		adopt  bool
		want   Condition // Good: it stays
		err    string
	}{
		"sound":                          {func(*State) {}, false, Good, ""},
		"none yet":                       {func(s *State) { *s = State{Name: "docs", Here: "app"} }, false, Absent, ""},
		"moved":                          {idle(func(s *State) { s.Checkpoint = 80 }), false, Good, ""},
		"back in time":                   {idle(func(s *State) { s.WALEnd = 99 }), false, Good, ""},
		"promoted":                       {idle(func(s *State) { s.Timeline = 1 }), false, Good, ""},
		"lost":                           {idle(lost), false, Lost, ""},
		"lost, and somebody holds it":    {lost, false, Good, `slot "docs" is in use by pid 4711`},
		"gone":                           {idle(func(s *State) { s.Exists = false }), false, Gone, ""},
		"without its publication":        {idle(func(s *State) { s.PublicationNow = 0 }), false, Unpublished, ""},
		"the same, and it is held":       {func(s *State) { s.PublicationNow = 0 }, false, Good, ""},
		"a copy":                         {idle(copied), false, Good, "(system id 7, it was 8)"},
		"a copy that is adopted":         {idle(copied), true, OtherServer, ""},
		"an adopted copy that is held":   {copied, true, Good, "is in use by"},
		"a standby, though it's adopted": {func(s *State) { s.Standby = true }, true, Good, "cannot hold the queue"},
		"another plugin":                 {idle(func(s *State) { s.Plugin = "wal2json" }), true, Good, `plugin "wal2json"`},
	} {
		s := sound()
		c.change(&s)
		want := ""
		if c.want != Good {
			want = c.want.String()
		}
		reason, err := s.Renewal(server, c.adopt)
		if reason != want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v, want %q and %q", name, reason, err, want, c.err)
		}
	}
}

// TestState_TellsWhoHoldsIt, and whether he makes it.
func TestState_TellsWhoHoldsIt(t *testing.T) {
	t.Parallel()
	s := sound()
	if got, want := s.Holder(), "pid 4711 one of role r"; got != want {
		t.Errorf("held by %q, want %q", got, want)
	}
	s.Application, s.Address = "", "10.0.0.7"
	if got, want := s.Holder(), "pid 4711 of role r from 10.0.0.7"; got != want {
		t.Errorf("held by %q, want %q", got, want)
	}
	if _, conflict := errors.AsType[*refusal.ConflictError](s.inUse()); !conflict ||
		!strings.Contains(s.inUse().Error(), "pid 4711") {
		t.Errorf("in use: %v", s.inUse())
	}
	if s.Making() || !s.Ours() || s.Lost() {
		t.Errorf("made %t, ours %t, lost %t", s.Making(), s.Ours(), s.Lost())
	}
	s.ConfirmedFlushLSN, s.Database = nil, "other"
	if !s.Making() || s.Ours() {
		t.Errorf("made %t, ours %t", s.Making(), s.Ours())
	}
	s.Active = false
	if s.Making() || s.Holder() != "" {
		t.Errorf("made %t, held by %q", s.Making(), s.Holder())
	}
}
