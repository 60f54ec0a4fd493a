package slot

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// Read returns the state of a slot. Our tables must be installed.
func Read(ctx context.Context, q database.Reader, name string) (State, error) {
	return Find(ctx, q, name, true)
}

// Find is Read, also before our tables are installed: then there is no checkpoint.
func Find(ctx context.Context, q database.Reader, name string, installed bool) (s State, err error) {
	query := "slot_state"
	if !installed {
		query = "slot_unrecorded"
	}
	rows, err := q.Query(ctx, sqlfiles.Query(query), pgx.StrictNamedArgs{"slot": name})
	if err == nil {
		s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[State])
	}
	return s, wrap.Errorf(err, "read slot %q", name)
}

// Begin writes a checkpoint without a position unless there is one. If the process stops before the slot is complete,
// the next process recognizes the slot as ours.
func Begin(ctx context.Context, q database.Querier, name, publication string,
	server pglogrepl.IdentifySystemResult,
) error {
	_, err := q.Exec(ctx, sqlfiles.Query("begin_checkpoint"), pgx.StrictNamedArgs{
		"slot": name, "publication": publication, "system_id": server.SystemID, "timeline": server.Timeline,
	})
	return wrap.Errorf(err, "write checkpoint")
}

// session implements maker with a replication connection and our tables.
type session struct {
	db   database.DB
	conn *pgconn.PgConn
}

func (s *session) role() string { return s.conn.ParameterStatus("session_authorization") }

func (s *session) drop(ctx context.Context, name string) error {
	_, err := s.conn.Exec(ctx, "SELECT pg_drop_replication_slot("+database.Literal(name)+")").ReadAll()
	return err
}

func (s *session) blockers(ctx context.Context) ([]database.Blocker, error) {
	return database.Blockers(ctx, s.db, "")
}

func (s *session) create(ctx context.Context, sql []string) (pglogrepl.LSN, error) {
	results, err := s.conn.Exec(ctx, strings.Join(sql, "; ")).ReadAll()
	if err != nil {
		return 0, err
	}
	return position(results, len(sql))
}

func (s *session) voidLeases(ctx context.Context, name string) (pipelines []int32, err error) {
	err = database.Transact(ctx, s.db, func(tx pgx.Tx) error {
		pipelines, err = queue.VoidLeases(ctx, tx, name)
		return err
	})
	return pipelines, err
}

func (s *session) record(ctx context.Context, h history) error {
	return database.Transact(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return fmt.Errorf("write checkpoint: %w", err)
		}
		_, err := tx.Exec(ctx, sqlfiles.Query("move_checkpoint"), pgx.StrictNamedArgs{
			"slot": h.slot, "lsn": h.lsn.String(), "system_id": h.server.SystemID, "timeline": h.server.Timeline,
		})
		if err != nil {
			return fmt.Errorf("write checkpoint: %w", err)
		}
		if h.moved {
			_, err := tx.Exec(ctx, sqlfiles.Query("reset_positions"), pgx.StrictNamedArgs{"lsn": h.lsn.String()})
			if err != nil {
				return fmt.Errorf("reset positions of the other server: %w", err)
			}
		}
		return queue.RequestScan(ctx, tx, h.reason, h.pipelines)
	})
}
