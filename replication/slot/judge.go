package slot

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// Condition is what the state of a slot means.
type Condition int

// The conditions. Those from Temporary on are gaps: changes may be missing, and the slot must be recreated and every
// row compared.
const (
	Good          Condition = iota
	OnStandby               // the server cannot hold the queue
	Absent                  // the slot never existed
	Elsewhere               // the slot belongs to another database
	Unrecorded              // the slot has no checkpoint and is not ours
	OtherPlugin             // the slot uses another output plugin
	OtherServer             // the data came from another server
	Awaited                 // commits of the whole server could wait for the stream
	Temporary               // our slot is gone, and a temporary slot has its name
	Interrupted             // its creation was started and never completed
	Gone                    // it was dropped
	Lost                    // the server removed WAL that the slot needed
	Altered                 // it sends prepared transactions, in messages that we do not read
	Unpublished             // its publication is missing
	Republished             // its publication was dropped and recreated
	Moved                   // it was advanced past the checkpoint
	Ahead                   // the server went back in time
	OtherTimeline           // the server was promoted without a copy of the slot
)

// Gap reports whether changes may be missing.
func (c Condition) Gap() bool { return c >= Temporary }

// String returns a short reason for creating a slot.
func (c Condition) String() string {
	return [...]string{
		Good: "it is good", OnStandby: "the server is a standby", Absent: "it does not exist",
		Elsewhere: "it is another database's", Unrecorded: "it is not ours", OtherPlugin: "it has another plugin",
		OtherServer: "the data came from another server", Awaited: "commits could wait for the stream",
		Temporary:   "a temporary one has its name",
		Interrupted: "making it was interrupted", Gone: "it is gone", Lost: "the server removed WAL it still needed",
		Altered:     "it was altered to send prepared transactions",
		Unpublished: "its publication was missing", Republished: "its publication was dropped and recreated",
		Moved: "it was moved past the checkpoint", Ahead: "the server went back in time",
		OtherTimeline: "the server was promoted",
	}[c]
}

// Verdict is the result of judging a slot.
type Verdict struct {
	Condition Condition
	Reason    string   // a sentence with details; "" when the slot is good
	Hint      []string // what the user can do; empty for a gap
}

const otherServer = "this server is not the one that was set up: the data was restored or copied elsewhere"

// Judge returns what the state means on the given server. It ignores whether a process holds the slot: the state of a
// slot that is being created, or whose holder has just saved a position, is not fully reliable.
func (s *State) Judge(server pglogrepl.IdentifySystemResult) Verdict {
	otherName := []string{"choose another name with --slot"}
	switch {
	case s.Standby:
		return Verdict{
			OnStandby, "the server is a standby: it cannot hold the queue",
			[]string{"point --database-url at the primary"},
		}
	case !s.Exists && !s.Recorded:
		return Verdict{Absent, fmt.Sprintf("slot %q does not exist", s.Name), []string{"run embedsidecar init"}}
	case s.Exists && s.Database != s.Here:
		return s.elsewhere()
	case s.Exists && !s.Recorded:
		return Verdict{Unrecorded, fmt.Sprintf("there is a slot %q that is not ours", s.Name), append(otherName,
			fmt.Sprintf("or, if it is not used: SELECT pg_drop_replication_slot(%s);", database.Literal(s.Name)))}
	case s.Exists && s.Plugin != Plugin:
		return Verdict{OtherPlugin, fmt.Sprintf("slot %q belongs to plugin %q", s.Name, s.Plugin), otherName}
	case s.OtherServer(server.SystemID):
		return Verdict{
			OtherServer, fmt.Sprintf("%s (system id %s, it was %s)", otherServer, server.SystemID, s.SystemID),
			[]string{"to use this copy on its own, run embedsidecar init --adopt with its pipelines configured: it creates a new slot and compares every row"},
		}
	case Awaits(s.StandbyNames):
		return Verdict{
			Awaited,
			fmt.Sprintf("synchronous_standby_names is '%s': commits of the server could wait for the stream", s.StandbyNames),
			[]string{
				"name the standbys in it, or ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; then SELECT pg_reload_conf();",
			},
		}
	}
	return s.gap(server)
}

// elsewhere is the verdict on a slot of another database.
func (s *State) elsewhere() Verdict {
	own := database.OwnSlot(s.Here)
	of := fmt.Sprintf("is of database %q", s.Database)
	if s.Database == "" {
		of = "is a physical one"
	}
	v := Verdict{
		Condition: Elsewhere,
		Reason: fmt.Sprintf("slot %q %s, not of %q: slot names are unique per server", s.Name, of,
			s.Here),
		Hint: []string{fmt.Sprintf(
			"use another slot for this database: slot: {name: %[1]s} in the configuration, or --slot %[1]s in every command", own)},
	}
	if s.Recorded {
		v.Hint = append(v.Hint, fmt.Sprintf(
			"if this database is a copy of the other, its pipelines must go to that slot first: embedsidecar init --adopt --slot %s", own))
	}
	return v
}

// gap reports whether our slot may not cover everything since the checkpoint, and why.
func (s *State) gap(server pglogrepl.IdentifySystemResult) Verdict {
	gap := func(c Condition, format string, facts ...any) Verdict {
		return Verdict{c, fmt.Sprintf(format, facts...), nil}
	}
	switch {
	case s.Temporary:
		return gap(Temporary, "the slot is gone, and a temporary one of %s has its name", s.Holder())
	case s.Begun:
		return gap(Interrupted, "the creation of the slot was interrupted")
	case !s.Exists:
		return gap(Gone, "the slot does not exist")
	case s.Lost():
		return gap(Lost, "the slot is lost: the server removed WAL it still needed (wal_status=lost)")
	case s.TwoPhase:
		return gap(Altered, "the slot was created or altered with two_phase: it sends prepared transactions before their end")
	case s.PublicationNow == 0:
		return gap(Unpublished, "publication %q was missing", s.Publication)
	case s.PublicationNow != s.PublicationOID:
		return gap(Republished, "publication %q was dropped and recreated", s.Publication)
	case s.ConfirmedFlushLSN != nil && *s.ConfirmedFlushLSN > s.Checkpoint:
		return gap(Moved, "the slot was moved to %s, past the checkpoint %s", s.ConfirmedFlushLSN, s.Checkpoint)
	case s.Checkpoint > s.WALEnd:
		return gap(Ahead, "the checkpoint %s is ahead of the server's WAL end %s: the server went back in time",
			s.Checkpoint, s.WALEnd)
	case s.Timeline != server.Timeline && !s.Failover:
		return gap(OtherTimeline, "the server moved from timeline %d to %d", s.Timeline, server.Timeline)
	}
	return Verdict{}
}

// Err returns the error for a condition that needs a user, or nil.
func (v Verdict) Err() error {
	switch v.Condition {
	case Elsewhere, Unrecorded, OtherPlugin:
		return &refusal.ConflictError{Problem: v.Reason, Hint: v.Hint, Code: code.OtherSlot}
	case OnStandby:
		return refusal.Coded(code.Standby, v.Reason, v.Hint...)
	case OtherServer:
		return refusal.Coded(code.Copied, v.Reason, v.Hint...)
	case Awaited:
		return refusal.Coded(code.Awaited, v.Reason, v.Hint...)
	default:
		return nil
	}
}

// Renewal returns why init must create or recreate the slot, or "" if it need not. A recreated slot means that every
// row is compared. Gaps that only the stream may answer, as configured, are left to it.
func (s *State) Renewal(server pglogrepl.IdentifySystemResult, adopt bool) (reason string, err error) {
	v := s.Judge(server)
	switch v.Condition {
	case Good, Moved, Ahead, OtherTimeline:
		return "", nil
	case Absent:
		return v.Condition.String(), nil
	case OtherServer:
		if !adopt {
			return "", v.Err()
		}
	default:
		if err := v.Err(); err != nil {
			return "", err
		}
	}
	switch {
	case !s.Active:
		return v.Condition.String(), nil
	case !adopt && (v.Condition == Unpublished || v.Condition == Republished):
		return "", nil // the holder of the slot finds the same and repairs it
	default:
		return "", s.inUse()
	}
}
