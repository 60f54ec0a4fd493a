// Package slot knows what a replication slot is to us: what its state means, how one is made, and what is written down
// of it. Init, the stream, check and status ask here, so that they are of one opinion. It streams nothing and plans
// nothing.
package slot

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// Plugin is the output plugin that we read.
const Plugin = "pgoutput"

// State is what the server says of a slot and what our checkpoint does.
type State struct {
	Name string
	Here string // the database that asks

	Exists            bool
	Temporary         bool // it goes with the session that made it
	Plugin            string
	Database          string // whose it is; "": it is a physical one
	Active            bool
	PID               int32 // of who holds it; 0: nobody does
	Application       string
	Role              string
	Address           string
	ConfirmedFlushLSN *pglogrepl.LSN
	WALStatus         string
	Failover          bool // standbys keep a copy of the slot
	TwoPhase          bool // prepared transactions are sent before their end, in messages that no stream of ours asks for

	Recorded       bool // it has a checkpoint
	Begun          bool // that was written before the slot was made, and never completed
	Checkpoint     pglogrepl.LSN
	SystemID       string // of the server on which the slot was made
	Timeline       int32  // on which somebody streamed from it last
	Epoch          int64
	Publication    string
	PublicationOID uint32 // when the slot was made
	PublicationNow uint32 // 0: there is none

	WALEnd   pglogrepl.LSN // what the server has flushed
	Standby  bool          // the server is one
	ServerID string        // its system id
	Version  int           // of the server, as server_version_num
}

// Ours reports whether the slot is one that a stream of this database can read.
func (s *State) Ours() bool { return s.Exists && s.Plugin == Plugin && s.Database == s.Here }

// Making reports whether somebody makes the slot: he holds it, and it has no position yet, because the server waits
// for open transactions.
func (s *State) Making() bool { return s.Active && s.ConfirmedFlushLSN == nil }

// Lost reports whether the server removed WAL that the slot needed.
func (s *State) Lost() bool { return s.WALStatus == "lost" }

// Elsewhere returns the database of this server whose slot it is, if that is another one.
func (s *State) Elsewhere() string {
	if s.Database == s.Here {
		return ""
	}
	return s.Database
}

// OtherServer reports whether the checkpoint was made on another server, so that the data was restored or copied.
func (s *State) OtherServer(systemID string) bool {
	return s.Recorded && !s.Begun && s.SystemID != systemID
}

// Holder tells people who streams from the slot; "": nobody does.
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

// inUse is the error of a slot that must be recreated while somebody holds it.
func (s *State) inUse() error {
	return &refusal.ConflictError{
		Problem: fmt.Sprintf("slot %q is in use by %s", s.Name, s.Holder()),
		Hint:    []string{"stop it first, and run embedsidecar init again"}, Code: code.SlotHeld,
	}
}

// Blockers returns the transactions that the making of the slot waits for; none if nobody makes it.
func (s *State) Blockers(ctx context.Context, q database.Reader) ([]database.Blocker, error) {
	if !s.Making() {
		return nil, nil
	}
	return database.Blockers(ctx, q, "")
}
