package replication

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication/slot"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// session is the life of one connection: it checks and takes the slot, then streams until an error or the end of ctx.
type session struct {
	s         *Stream
	wire      wire
	store     func(ctx context.Context, b queue.Batch) (queue.Enqueued, error)
	epoch     int64
	start     pglogrepl.LSN
	walEnd    pglogrepl.LSN // the end of the WAL when the session began
	buffer    *buffer
	durable   chan pglogrepl.LSN // from the enqueuer to the reader
	told      chan struct{}      // signals a notification
	relations map[uint32]*relation
	routes    *routing // the stream's routes when relations were last matched
	tx        *transaction
	warned    time.Time // last warning about ignored hints
	hurried   time.Time // last time a message requesting a position was served
	disturbed time.Time // last message of another role or notification
	waited    bool      // the current message was waited for
	replayed  bool      // the current transaction was handled before a restart
	pos       position
	feedback  time.Duration
	patience  time.Duration // how long the server may stay silent
	pace      pace.Pace     // of enqueues
	heldUp    time.Time     // last time another session's lock blocked the queue

	restsUntil atomic.Int64 // Unix nanoseconds: the enqueuer takes nothing before this time
}

func (s *Stream) session(ctx context.Context) error {
	st, err := s.state(ctx)
	if err != nil {
		return err
	}
	s.judged = judged{epoch: st.Epoch}
	if err := s.standby(ctx, &st); err != nil {
		return err
	}
	s.stats.Standby.Store(false)
	conn, err := s.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connect for replication: %w", err)
	}
	defer closeSoon(ctx, conn)
	system, err := identify(ctx, conn)
	if err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	if err := s.check(ctx, &st, system); err != nil {
		return err
	}
	if s.o.Prepare != nil {
		// Pipelines may have been added while another sidecar streamed. Changes without a known pipeline would be lost.
		if err := s.o.Prepare(ctx); err != nil {
			return err
		}
	}
	ses := &session{
		s: s, wire: connWire{conn}, walEnd: system.XLogPos, buffer: newBuffer(), durable: make(chan pglogrepl.LSN, 1),
		told: make(chan struct{}, 1), relations: map[uint32]*relation{},
		pace:  pace.Pace{Share: pace.Stream},
		store: s.store,
	}
	starting, cancel := context.WithTimeout(ctx, answersSoon)
	defer cancel()
	timeout, err := senderTimeout(starting, conn)
	if err != nil {
		return err
	}
	ses.feedback = heardEvery(timeout)
	ses.patience = answersWithin(timeout)
	how := pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'", "messages 'true'", "publication_names '" +
				strings.ReplaceAll(database.Quote(st.Publication), "'", "''") + "'",
		},
	}
	err = pglogrepl.StartReplication(starting, conn, database.Quote(s.o.Slot), st.Checkpoint, how)
	if database.HasCode(err, pgerrcode.ObjectInUse) {
		return slot.ErrBusy
	}
	if err != nil { // if the slot is broken, the next session reports why
		return fmt.Errorf("start replication on slot %q: %w", s.o.Slot, err)
	}
	if err := s.begin(ctx, ses, &st, system); err != nil {
		return fmt.Errorf("take slot %q: %w", s.o.Slot, err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{ses.read, ses.enqueue, ses.hear, ses.watch, ses.steady} {
		// A panic ends the session, which owns all unsaved state. The next session starts at the checkpoint.
		g.Go(func() error {
			return s.o.Keeper.Guard(gctx, restart.Replication, func() error { return part(gctx) })
		})
	}
	return g.Wait()
}

// begin takes the slot, which serves as the lock: from now on only enqueues with this epoch count.
func (s *Stream) begin(ctx context.Context, ses *session, st *slot.State, system pglogrepl.IdentifySystemResult,
) (err error) {
	moved := ""
	switch {
	case st.Timeline != system.Timeline:
		moved = "the server is a standby that was promoted"
	case st.Checkpoint < pglogrepl.LSN(s.stats.DurableLSN.Load()):
		moved = "the server went back in time"
		s.o.Log.WarnContext(ctx, "server and slot went back in time: comparing all rows", "slot", s.o.Slot,
			"checkpoint", st.Checkpoint, "was", pglogrepl.LSN(s.stats.DurableLSN.Load()))
	}
	if ses.epoch, ses.start, err = s.takeEpoch(ctx, system.Timeline, moved); err != nil {
		return err
	}
	ses.pos = position{received: ses.start, durable: ses.start}
	ses.buffer.took = ses.start
	s.stats.Connected.Store(true)
	s.stats.Streaming.Store(true)
	s.stats.Blockers.Store(nil)
	s.stats.DurableLSN.Store(uint64(ses.start))
	s.o.Log.InfoContext(ctx, "streaming", "slot", s.o.Slot, "lsn", ses.start, "epoch", ses.epoch)
	return nil
}

// takeEpoch makes this stream the only one whose enqueues count, and stores its routes. A non-empty moved is the
// reason why the server may be another than before. Then workers may hold texts, and a stream may have stored a
// position, that this server does not know: all leases end and every row is compared.
func (s *Stream) takeEpoch(ctx context.Context, timeline int32, moved string) (epoch int64, start pglogrepl.LSN,
	err error,
) {
	err = skipping(func(skip bool) (err error) {
		epoch, start, err = s.takeEpochOnce(ctx, timeline, moved, skip)
		return err
	})
	return epoch, start, err
}

func (s *Stream) takeEpochOnce(ctx context.Context, timeline int32, moved string, skip bool) (epoch int64,
	start pglogrepl.LSN, err error,
) {
	tx, err := s.o.DB.Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit this does nothing
	err = tx.QueryRow(ctx, sqlfiles.Query("take_epoch"), pgx.StrictNamedArgs{
		"slot":     s.o.Slot,
		"timeline": timeline,
	}).Scan(&epoch, &start)
	if err != nil {
		return 0, 0, err
	}
	a := s.routeRows(epoch)
	ids, held, err := s.storeRoutes(ctx, tx, a, skip)
	if err != nil {
		return 0, 0, err
	}
	if moved != "" {
		if ids, err = queue.VoidLeases(ctx, tx, s.o.Slot); err != nil {
			return 0, 0, err
		}
		if err := queue.RequestScan(ctx, tx, moved, ids); err != nil {
			return 0, 0, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, 0, err
	}
	s.epoch.Store(epoch)
	s.judged.epoch = epoch
	if held == 0 { // otherwise the next StoreRoutes tries again
		s.routesStored.Store(a.sum())
	}
	s.o.Queue.Wake(ids...)
	return epoch, start, nil
}

// answersSoon limits simple requests to the server. A connection dropped by a middlebox would never answer.
const answersSoon = time.Minute

// closeSoon closes a connection with a timeout, even after ctx has ended.
func closeSoon(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func identify(ctx context.Context, conn *pgconn.PgConn) (pglogrepl.IdentifySystemResult, error) {
	ctx, cancel := context.WithTimeout(ctx, answersSoon)
	defer cancel()
	return pglogrepl.IdentifySystem(ctx, conn)
}

// senderTimeout returns wal_sender_timeout of the session; 0: none. It may be set per role and database.
func senderTimeout(ctx context.Context, conn *pgconn.PgConn) (time.Duration, error) {
	const sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err == nil && (len(results) != 1 || len(results[0].Rows) != 1) {
		err = errors.New("the server has no such setting")
	}
	var ms int64
	if err == nil {
		ms, err = strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// heardEvery returns the feedback interval for a wal_sender_timeout; 0: the server has none.
func heardEvery(timeout time.Duration) time.Duration {
	const shortest, longest = 50 * time.Millisecond, 10 * time.Second
	if timeout <= 0 {
		return longest
	}
	return max(min(longest, timeout/3), shortest)
}

// answersWithin returns how long a server may leave a reply request unanswered. While it decodes a transaction that it
// does not send, it checks for requests only after half of its timeout.
func answersWithin(timeout time.Duration) time.Duration {
	every := heardEvery(timeout)
	return max(6*every, timeout/2+3*every)
}
