package sidecar

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
	"github.com/embedsidecar/embedsidecar/replication/slot"
)

// registration is this sidecar's row in the table worker, and the table's OID.
type registration struct {
	id     int64
	table  uint32
	narrow bool // the database's encoding lacks characters of UTF-8
}

func (s *Sidecar) me() *registration { return s.registered.Load() }

// role returns the sidecar's role as one word.
func (s *Sidecar) role() string {
	switch {
	case s.o.NoWork:
		return "stream"
	case s.o.NoStream:
		return "work"
	}
	return "all"
}

// register adds this sidecar to the table worker. It returns a *replication.FatalError in a database that was restored
// from a dump of another server: the OIDs of the pipelines' tables may be those of other tables here.
func (s *Sidecar) register(ctx context.Context) error {
	st, err := slot.Read(ctx, s.o.Pool, s.o.Slot)
	if err != nil {
		return err
	}
	if st.OtherServer(st.ServerID) {
		v := st.Judge(pglogrepl.IdentifySystemResult{SystemID: st.ServerID, Timeline: st.Timeline})
		return &replication.FatalError{Kind: replication.OtherServer, Reason: v.Reason, Way: wording.Joined(v.Hint)}
	}
	var r registration
	err = s.o.Pool.QueryRow(ctx, `WITH quiet AS (DELETE FROM embedsidecar.worker AS w
			WHERE w.quiet_until IS NOT NULL AND w.slot_name = $3
			AND (w.session_name = current_setting('application_name') OR NOT embedsidecar.runs(w)))
		INSERT INTO embedsidecar.worker (instance, version, slot_name, host, role, session_name)
		VALUES ($1, $2, $3, $4, $5, current_setting('application_name'))
		RETURNING worker_id, tableoid, getdatabaseencoding() NOT IN ('UTF8', 'SQL_ASCII')`,
		s.o.Instance, s.o.Version, s.o.Slot, s.o.Host, s.role()).Scan(&r.id, &r.table, &r.narrow)
	if err != nil {
		return fmt.Errorf("register as a worker: %w", err)
	}
	s.registered.Store(&r)
	return nil
}

// storable makes a message from outside the database fit its encoding: a statement with a character that the encoding
// lacks fails as a whole.
func (s *Sidecar) storable(message string) string {
	if me := s.me(); me == nil || !me.narrow {
		return message
	}
	return wording.ASCII(message)
}

// noteQuiet marks the row with the latest time of return instead of deleting it.
func (s *Sidecar) noteQuiet(ctx context.Context, l *leave) error {
	_, err := s.o.Pool.Exec(ctx, `UPDATE embedsidecar.worker SET last_seen_at = now(), quiet_until = now() + $2::interval,
		stream = $3, problems = '{}', stream_detail = $4 WHERE worker_id = $1`,
		s.me().id, l.of, string(health.Quiet), l.why.Error())
	return err
}

// stillKnown registers again if our tables are not those in which this sidecar registered: a dump was restored. The
// restored places of tasks and leases are lower than our cursors, so we would not find them. A restore creates primary
// keys last: before that nothing is done.
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
	// A position stored by the stream shows whether the slot is ahead of the queue.
	_, err = s.o.Pool.Exec(ctx, `SELECT pg_notify($1, pg_current_wal_lsn()::text)
		WHERE pg_notification_queue_usage() < 0.5`, queue.Waiting)
	return err
}
