package slot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
)

// version17 is the first server whose slots can fail over.
const version17 = 170000

// ErrBusy means that another process holds the slot, or has dropped or made it since its state was read: look again.
var ErrBusy = errors.New("the slot is active elsewhere")

// Maker makes a slot and begins a new history of it.
type Maker struct {
	DB       database.DB
	Conn     *pgconn.PgConn // for replication
	Server   pglogrepl.IdentifySystemResult
	Failover bool          // standbys keep a copy of it, from PostgreSQL 17 on
	Timeout  time.Duration // how long to wait for the open transactions of the cluster; 0: as long as it takes
	Log      *slog.Logger
	Tell     func([]database.Blocker) // hears, now and then, whom the server waits for; may be nil
}

// maker is what the making of a slot asks of the server. This file decides; what session does is tried on a real
// server, and tests of decisions have one in memory.
type maker interface {
	drop(ctx context.Context, name string) error
	// create runs statements of which the last one makes a slot, and returns its position. The server waits for all
	// running transactions of the cluster first.
	create(ctx context.Context, sql []string) (pglogrepl.LSN, error)
	role() string // who asks
	blockers(ctx context.Context) ([]database.Blocker, error)
	// voidLeases is queue.VoidLeases, in a transaction of its own.
	voidLeases(ctx context.Context, name string) (pipelines []int32, err error)
	// record writes a history down, all of it or nothing.
	record(ctx context.Context, h history) error
}

// history is what begins with a slot.
type history struct {
	slot      string
	lsn       pglogrepl.LSN
	server    pglogrepl.IdentifySystemResult
	moved     bool    // the queue came from another server, whose positions mean nothing here
	pipelines []int32 // which are compared row by row
	reason    string
}

// Make drops what there is of a slot, makes it, and writes its checkpoint down together with requests for a scan of
// each of its pipelines, which it returns. The checkpoint must have been begun. While the server waits for open
// transactions, they are named in the log, and in the error when it takes too long.
//
// It leaves nothing half-done: a slot that could not be written down is dropped, since it would keep WAL for nobody.
// Who is killed in its middle leaves a slot whose position is not the checkpoint's, as the next look finds.
func (m *Maker) Make(ctx context.Context, s *State, reason string) (pipelines []int32, err error) {
	return m.makeOn(ctx, &session{m.DB, m.Conn}, s, reason)
}

func (m *Maker) makeOn(ctx context.Context, on maker, s *State, reason string) (pipelines []int32, err error) {
	if s.Exists {
		err := on.drop(ctx, s.Name)
		if database.HasCode(err, pgerrcode.ObjectInUse, pgerrcode.UndefinedObject) {
			return nil, fmt.Errorf("drop slot %q: %w: %w", s.Name, ErrBusy, err)
		}
		if err != nil {
			return nil, fmt.Errorf("drop slot %q: %w", s.Name, err)
		}
	}
	lsn, err := m.create(ctx, on, s)
	if err != nil {
		return nil, err
	}
	pipelines, err = m.record(ctx, on, s, lsn, reason)
	if err != nil {
		const timeout = 10 * time.Second
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		return nil, errors.Join(err, on.drop(last, s.Name))
	}
	return pipelines, nil
}

// statements make a slot. A session that may stream takes SQL too, and unlike the replication command, SQL obeys a
// time limit and knows of failover. The server waits for transactions as for locks, and a busy one always has one that
// is older than our lock_timeout.
func (m *Maker) statements(s *State) []string {
	arguments := database.Literal(s.Name) + ", '" + Plugin + "'"
	if m.Failover && s.Version >= version17 {
		arguments += ", false, false, true"
	}
	return []string{
		"SET lock_timeout = 0", fmt.Sprintf("SET statement_timeout = %d", m.Timeout.Milliseconds()),
		"SELECT lsn FROM pg_create_logical_replication_slot(" + arguments + ")",
	}
}

// create returns the position from which on the slot delivers every commit.
func (m *Maker) create(ctx context.Context, on maker, s *State) (pglogrepl.LSN, error) {
	defer m.watch(ctx, on, s.Name)()
	lsn, err := on.create(ctx, m.statements(s))
	switch {
	case database.HasCode(err, pgerrcode.QueryCanceled) && ctx.Err() == nil && m.Timeout > 0:
		return 0, m.waited(ctx, on, s.Name, err)
	case database.HasCode(err, pgerrcode.DuplicateObject):
		return 0, fmt.Errorf("create slot %q: %w: %w", s.Name, ErrBusy, err)
	case database.Denied(err):
		return 0, &refusal.PermissionError{
			What: fmt.Sprintf("create slot %q", s.Name), Role: on.role(),
			SQL: []string{"ALTER ROLE " + database.Quote(on.role()) + " REPLICATION;"}, Err: err,
		}
	case err != nil:
		return 0, fmt.Errorf("create slot %q: %w", s.Name, err)
	}
	return lsn, nil
}

// position is the one that the last of so many statements returns.
func position(results []*pgconn.Result, statements int) (pglogrepl.LSN, error) {
	if len(results) != statements || len(results[statements-1].Rows) != 1 {
		return 0, errors.New("the server reported no position")
	}
	text := string(results[statements-1].Rows[0][0])
	lsn, err := pglogrepl.ParseLSN(text)
	return lsn, wrap.Errorf(err, "position %q", text)
}

// watch says whom the making of the slot waits for, until the function it returns is called.
func (m *Maker) watch(ctx context.Context, on maker, name string) (stop func()) {
	watching, cancel := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		database.WatchBlockers(watching, on.blockers, func(list []database.Blocker) {
			if m.Tell != nil {
				m.Tell(list)
			}
			m.Log.WarnContext(watching, "slot creation waits for open transactions", "slot", name, "transactions",
				strings.Join(database.Named(list), "; "))
		})
	})
	return func() {
		cancel()
		watched.Wait()
	}
}

// waited is the error of a slot that could not be made in time.
func (m *Maker) waited(ctx context.Context, on maker, name string, cause error) error {
	list, err := on.blockers(ctx)
	blockers := database.Named(list)
	if err != nil {
		blockers = []string{err.Error()}
	}
	hint := []string{"wait for them to end, or end them: SELECT pg_terminate_backend(pid); then run embedsidecar init again"}
	for _, b := range blockers {
		hint = append(hint, "running: "+b)
	}
	return &refusal.ConflictError{Problem: fmt.Sprintf(
		"slot %q could not be created within %s: the server waits for every open transaction of the cluster", name,
		m.Timeout), Hint: hint, Err: cause, Code: code.Locked}
}

// record begins the new history. Leases end before the scans are asked for, which wait for every transaction that has
// begun by then: no worker writes what he has read of another history.
func (m *Maker) record(ctx context.Context, on maker, s *State, lsn pglogrepl.LSN, reason string) ([]int32, error) {
	pipelines, err := on.voidLeases(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	return pipelines, on.record(ctx, history{
		slot: s.Name, lsn: lsn, server: m.Server, moved: s.Recorded && s.SystemID != m.Server.SystemID,
		pipelines: pipelines, reason: reason,
	})
}
