package sidecar

import (
	"context"
	"fmt"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/queue"
)

// registration is the row that tells of this sidecar, and the table that it is in.
type registration struct {
	id    int64
	table uint32
}

func (s *Sidecar) me() *registration { return s.registered.Load() }

// role is what this sidecar does of the two, in a word.
func (s *Sidecar) role() string {
	switch {
	case s.o.NoWork:
		return "stream"
	case s.o.NoStream:
		return "work"
	}
	return "all"
}

// register tells the database that this sidecar works here.
func (s *Sidecar) register(ctx context.Context) error {
	var r registration
	err := s.o.Pool.QueryRow(ctx, `WITH quiet AS (DELETE FROM embedsidecar.worker AS w
			WHERE w.quiet_until IS NOT NULL AND w.slot_name = $3
			AND (w.session_name = current_setting('application_name') OR NOT embedsidecar.runs(w)))
		INSERT INTO embedsidecar.worker (instance, version, slot_name, host, role, session_name)
		VALUES ($1, $2, $3, $4, $5, current_setting('application_name')) RETURNING worker_id, tableoid`,
		s.o.Instance, s.o.Version, s.o.Slot, s.o.Host, s.role()).Scan(&r.id, &r.table)
	if err != nil {
		return fmt.Errorf("register as a worker: %w", err)
	}
	s.registered.Store(&r)
	return nil
}

// noteQuiet says in place of a farewell that this sidecar is back after a time at the latest.
func (s *Sidecar) noteQuiet(ctx context.Context, l *leave) error {
	_, err := s.o.Pool.Exec(ctx, `UPDATE embedsidecar.worker SET last_seen_at = now(), quiet_until = now() + $2::interval,
		stream = $3, problems = '{}', stream_detail = $4 WHERE worker_id = $1`,
		s.me().id, l.of, string(health.Quiet), l.why.Error())
	return err
}

// stillKnown begins again where the tables of ours are not those in which this sidecar has registered: a dump was
// restored over the database. Its places of tasks and leases are smaller than those that we remember, so that we
// would see none. A restore makes primary keys when all rows are there: before that nothing is done.
func (s *Sidecar) stillKnown(ctx context.Context) error {
	before := s.me()
	var gone bool
	err := s.o.Pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM embedsidecar.worker AS w WHERE w.worker_id = $1
		AND w.tableoid = $2)
		AND EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = 'embedsidecar.worker'::regclass AND i.indisprimary)`,
		before.id, before.table).Scan(&gone)
	if err != nil || !gone {
		return err
	}
	s.stopAll()
	s.queue.Forget()
	if err := s.register(ctx); err != nil {
		return err
	}
	s.o.Log.WarnContext(ctx, "this sidecar is no longer registered, as after a restore: registering again", "was",
		before.id, "now", s.me().id)
	// A position that the streamer stores proves whether the slot is further than the queue.
	_, err = s.o.Pool.Exec(ctx, `SELECT pg_notify($1, pg_current_wal_lsn()::text)
		WHERE pg_notification_queue_usage() < 0.5`, queue.Waiting)
	return err
}
