// Package slot judges, creates and records replication slots. Init, the stream, check and status share it, so that they
// agree. It does not stream.
package slot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// Plugin is the output plugin that we use.
const Plugin = "pgoutput"

// State is the state of a slot on the server and of its checkpoint.
type State struct {
	Name string
	Here string // the current database

	Exists            bool
	Temporary         bool // dropped with the session that created it
	Plugin            string
	Database          string // the slot's database; "": a physical slot
	Active            bool
	PID               int32 // of the holder; 0: none
	Application       string
	Role              string
	Address           string
	ConfirmedFlushLSN *pglogrepl.LSN
	WALStatus         string
	Failover          bool // standbys keep a copy of the slot
	TwoPhase          bool // prepared transactions are sent before they end, in messages that we do not request

	Recorded       bool // it has a checkpoint
	Begun          bool // the checkpoint was written before the slot was created, and never completed
	Checkpoint     pglogrepl.LSN
	SystemID       string // of the server on which the slot was made
	Timeline       int32  // of the last stream
	Epoch          int64
	Publication    string
	PublicationOID uint32 // when the slot was created
	PublicationNow uint32 // 0: there is none

	WALEnd   pglogrepl.LSN // the server's flush position
	Standby  bool          // the server is a standby
	ServerID string        // the server's system id
	Version  int           // server_version_num

	StandbyNames string // synchronous_standby_names
}

// Ours reports whether a stream of this database can read the slot.
func (s *State) Ours() bool { return s.Exists && s.Plugin == Plugin && s.Database == s.Here }

// Making reports whether a process is creating the slot: it holds the slot, which has no position while the server
// waits for open transactions.
func (s *State) Making() bool { return s.Active && s.ConfirmedFlushLSN == nil }

// Awaits reports whether this value of synchronous_standby_names lets the server choose any session that streams as the
// standby that commits wait for. If it chose ours, the commit of a checkpoint would wait for its own confirmation, and
// all other commits with it. In the mode ANY the real standbys confirm each checkpoint before we do, so we never count.
func Awaits(names string) bool {
	words := strings.Fields(names)
	return len(words) > 0 && !strings.EqualFold(words[0], "any") && slices.ContainsFunc(
		strings.FieldsFunc(names, func(r rune) bool { return strings.ContainsRune("(),", r) }),
		func(name string) bool { return strings.Trim(name, " \t\r\n\"") == "*" })
}

// Lost reports whether the server removed WAL that the slot needed.
func (s *State) Lost() bool { return s.WALStatus == "lost" }

// OtherServer reports whether the checkpoint was made on another server: the data was restored or copied.
func (s *State) OtherServer(systemID string) bool {
	return s.Recorded && !s.Begun && s.SystemID != systemID
}

// Holder describes the session that holds the slot; "": none.
func (s *State) Holder() string {
	if !s.Active {
		return ""
	}
	words := []string{fmt.Sprintf("pid %d", s.PID)}
	if s.Application != "" {
		words = append(words, s.Application)
	}
	words = append(words, "of role "+s.Role)
	if s.Address != "" {
		words = append(words, "from "+s.Address)
	}
	return strings.Join(words, " ")
}

// inUse is the error for a slot that must be recreated while it is held.
func (s *State) inUse() error {
	return &refusal.ConflictError{
		Problem: fmt.Sprintf("slot %q is in use by %s", s.Name, s.Holder()),
		Hint:    []string{"stop it first, and run embedsidecar init again"}, Code: code.SlotHeld,
	}
}

// Blockers returns the transactions that delay the creation of the slot; none if no process creates it.
func (s *State) Blockers(ctx context.Context, q database.Reader) ([]database.Blocker, error) {
	if !s.Making() {
		return nil, nil
	}
	return database.Blockers(ctx, q, "")
}
