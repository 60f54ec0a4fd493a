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
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/refusal"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// version17 is the first server whose slots can fail over.
const version17 = 170000

// ErrBusy means that somebody holds the slot that shall be made anew.
var ErrBusy = errors.New("the slot is active elsewhere")

// Begin writes a checkpoint without a position, unless there is one: whoever is stopped while he makes the slot leaves
// one that the next knows to be ours.
func Begin(ctx context.Context, q database.Querier, name, publication string,
	server pglogrepl.IdentifySystemResult,
) error {
	_, err := q.Exec(ctx, sqlfiles.Query("begin_checkpoint"), pgx.StrictNamedArgs{
		"slot": name, "publication": publication, "system_id": server.SystemID, "timeline": server.Timeline,
	})
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// Maker makes a slot and begins a new history of it.
type Maker struct {
	DB interface {
		database.DB
		database.Querier
	}
	Conn     *pgconn.PgConn // for replication
	Server   pglogrepl.IdentifySystemResult
	Failover bool          // standbys keep a copy of it, from PostgreSQL 17 on
	Timeout  time.Duration // how long to wait for the open transactions of the cluster; 0: as long as it takes
	Log      *slog.Logger
	Tell     func([]database.Blocker) // hears, now and then, whom the server waits for; may be nil
}

// Make drops what there is of a slot, makes it, and writes its checkpoint down together with requests for a scan of
// each of its pipelines, which it returns. The checkpoint must have been begun. While the server waits for open
// transactions, they are named in the log, and in the error when it takes too long.
//
// It leaves nothing half-done: a slot that could not be written down is dropped, since it would keep WAL for nobody.
// Who is killed in its middle leaves a slot whose position is not the checkpoint's, as the next look finds.
func (m *Maker) Make(ctx context.Context, s *State, reason string) (pipelines []int32, err error) {
	if s.Exists {
		err := m.drop(ctx, s.Name)
		if database.HasCode(err, pgerrcode.ObjectInUse) {
			return nil, fmt.Errorf("drop slot %q: %w: %w", s.Name, ErrBusy, err)
		}
		if err != nil {
			return nil, fmt.Errorf("drop slot %q: %w", s.Name, err)
		}
	}
	lsn, err := m.create(ctx, s)
	if err != nil {
		return nil, err
	}
	pipelines, err = m.record(ctx, s, lsn, reason)
	if err != nil {
		const patience = 10 * time.Second
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return nil, errors.Join(err, m.drop(last, s.Name))
	}
	return pipelines, nil
}

func (m *Maker) drop(ctx context.Context, name string) error {
	_, err := m.Conn.Exec(ctx, "SELECT pg_drop_replication_slot("+database.Literal(name)+")").ReadAll()
	return err
}

// statements make a slot. A session that may stream takes SQL too, and unlike the replication command, SQL obeys a
// time limit and knows of failover. The server waits for transactions as for locks, and a busy one always has one that
// is older than our lock_timeout.
func (m *Maker) statements(s *State) (sql string, results int) {
	arguments := database.Literal(s.Name) + ", '" + Plugin + "'"
	if m.Failover && s.Version >= version17 {
		arguments += ", false, false, true"
	}
	list := []string{
		"SET lock_timeout = 0", fmt.Sprintf("SET statement_timeout = %d", m.Timeout.Milliseconds()),
		"SELECT lsn FROM pg_create_logical_replication_slot(" + arguments + ")",
	}
	return strings.Join(list, "; "), len(list)
}

// create returns the position from which on the slot delivers every commit. The server waits for all running
// transactions of the cluster first.
func (m *Maker) create(ctx context.Context, s *State) (pglogrepl.LSN, error) {
	defer m.watch(ctx, s.Name)()
	sql, n := m.statements(s)
	results, err := m.Conn.Exec(ctx, sql).ReadAll()
	switch {
	case database.HasCode(err, pgerrcode.QueryCanceled) && ctx.Err() == nil && m.Timeout > 0:
		return 0, m.waited(ctx, s.Name, err)
	case database.Denied(err):
		role := m.Conn.ParameterStatus("session_authorization")
		return 0, &refusal.PermissionError{
			What: fmt.Sprintf("create slot %q", s.Name), Role: role,
			SQL: []string{"ALTER ROLE " + database.Quote(role) + " REPLICATION;"}, Err: err,
		}
	case err != nil:
		return 0, fmt.Errorf("create slot %q: %w", s.Name, err)
	}
	if len(results) != n || len(results[n-1].Rows) != 1 {
		return 0, fmt.Errorf("create slot %q: the server gave no position", s.Name)
	}
	position := string(results[n-1].Rows[0][0])
	lsn, err := pglogrepl.ParseLSN(position)
	if err != nil {
		return 0, fmt.Errorf("create slot %q: position %q: %w", s.Name, position, err)
	}
	return lsn, nil
}

// watch says whom the making of the slot waits for, until the function it returns is called.
func (m *Maker) watch(ctx context.Context, name string) (stop func()) {
	watching, cancel := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() {
		database.WatchBlockers(watching, m.DB, func(list []database.Blocker) {
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
func (m *Maker) waited(ctx context.Context, name string, cause error) error {
	list, err := database.Blockers(ctx, m.DB, "")
	blockers := database.Named(list)
	if err != nil {
		blockers = []string{err.Error()}
	}
	hint := []string{"wait for them to end, or end them: SELECT pg_terminate_backend(pid); then run embedsidecar init again"}
	for _, b := range blockers {
		hint = append(hint, "running: "+b)
	}
	return &refusal.ConflictError{Problem: fmt.Sprintf(
		"slot %q could not be made within %s: the server waits for every transaction of the cluster that is running", name,
		m.Timeout), Hint: hint, Err: cause}
}

// record begins the new history. Leases end before the scans are asked for, which wait for every transaction that has
// begun by then: no worker writes what he has read of another history.
func (m *Maker) record(ctx context.Context, s *State, lsn pglogrepl.LSN, reason string) (pipelines []int32, err error) {
	err = m.transact(ctx, func(tx pgx.Tx) error {
		pipelines, err = queue.VoidLeases(ctx, tx, s.Name)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = m.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return fmt.Errorf("write checkpoint: %w", err)
		}
		_, err := tx.Exec(ctx, sqlfiles.Query("move_checkpoint"), pgx.StrictNamedArgs{
			"slot": s.Name, "lsn": lsn.String(), "system_id": m.Server.SystemID, "timeline": m.Server.Timeline,
		})
		if err != nil {
			return fmt.Errorf("write checkpoint: %w", err)
		}
		if s.Recorded && s.SystemID != m.Server.SystemID {
			if _, err := tx.Exec(ctx, sqlfiles.Query("reset_positions"), pgx.StrictNamedArgs{"lsn": lsn.String()}); err != nil {
				return fmt.Errorf("forget positions of the other server: %w", err)
			}
		}
		return queue.RequestScan(ctx, tx, reason, pipelines)
	})
	return pipelines, err
}

// transact runs f in a transaction, again while it loses against a lock.
func (m *Maker) transact(ctx context.Context, f func(tx pgx.Tx) error) error {
	return database.UntilUnlocked(ctx, func() error { return pgx.BeginFunc(ctx, m.DB, f) })
}
