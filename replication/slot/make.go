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

// version17 is the first server version with failover slots.
const version17 = 170000

// ErrBusy means that another process holds the slot, or dropped or created it since its state was read. Read it again.
var ErrBusy = errors.New("the slot is active elsewhere")

// Maker creates a slot and records its checkpoint.
type Maker struct {
	DB       database.DB
	Conn     *pgconn.PgConn // for replication
	Server   pglogrepl.IdentifySystemResult
	Failover bool          // standbys keep a copy of the slot (PostgreSQL 17+)
	Timeout  time.Duration // how long to wait for open transactions of the cluster; 0: no limit
	Log      *slog.Logger
	Tell     func([]database.Blocker) // receives the blocking transactions from time to time; may be nil
}

// maker is the server's part in creating a slot. Decisions are in this file; session is tested on a real server, and
// tests of decisions use one in memory.
type maker interface {
	drop(ctx context.Context, name string) error
	// create runs statements, the last of which creates a slot, and returns its position. The server first waits for
	// all running transactions of the cluster.
	create(ctx context.Context, sql []string) (pglogrepl.LSN, error)
	role() string // the role of the connection
	blockers(ctx context.Context) ([]database.Blocker, error)
	// voidLeases is queue.VoidLeases in its own transaction.
	voidLeases(ctx context.Context, name string) (pipelines []int32, err error)
	// record stores a history atomically.
	record(ctx context.Context, h history) error
}

// history is what starts with a new slot.
type history struct {
	slot      string
	lsn       pglogrepl.LSN
	server    pglogrepl.IdentifySystemResult
	moved     bool    // the queue came from another server, whose positions are meaningless here
	pipelines []int32 // to be compared row by row
	reason    string
}

// Make drops the slot if it exists, creates it, and stores its checkpoint together with scan requests for all its
// pipelines, which it returns. Begin must have written the checkpoint. Open transactions that delay it are logged, and
// named in the error after a timeout.
//
// On error it drops the new slot, which would only retain WAL. If the process is killed midway, the slot's position
// differs from the checkpoint, and the next check finds that.
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

// statements returns the SQL that creates a slot. A replication session accepts SQL. Unlike the replication command,
// SQL obeys statement_timeout and supports failover. lock_timeout is off: the server waits for transactions as for
// locks, and a busy server always has one that is older than our lock_timeout.
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

// create returns the position from which the slot delivers every commit.
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

// position returns the position in the result of the last statement.
func position(results []*pgconn.Result, statements int) (pglogrepl.LSN, error) {
	if len(results) != statements || len(results[statements-1].Rows) != 1 {
		return 0, errors.New("the server reported no position")
	}
	text := string(results[statements-1].Rows[0][0])
	lsn, err := pglogrepl.ParseLSN(text)
	return lsn, wrap.Errorf(err, "position %q", text)
}

// watch reports the blocking transactions until the returned function is called.
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

// waited is the error for a slot that could not be created in time.
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

// record stores the new history. Leases end before the scans are requested, and scans wait for all transactions begun
// before them. So no worker writes data that it read in another history.
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
