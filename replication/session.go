package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"golang.org/x/sync/errgroup"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/mark"
	"github.com/embedsidecar/embedsidecar/internal/slot"
	"github.com/embedsidecar/embedsidecar/queue"
	sqlfiles "github.com/embedsidecar/embedsidecar/sql"
)

// session is one connection's life: check, take the slot, stream until something ends it.
type session struct {
	s         *Stream
	conn      *pgconn.PgConn
	epoch     int64
	start     pglogrepl.LSN
	buffer    *buffer
	durable   chan pglogrepl.LSN // the enqueuer tells the reader
	relations map[uint32]*relation
	tx        *transaction
	marks     bool // logical messages are asked for
	skip      bool // the transaction being decoded was handled before a restart
	pos       position
	feedback  time.Duration
}

// relation is a published table as the stream announced it.
type relation struct {
	message *pglogrepl.RelationMessage
	oids    []uint32 // itself and the partitioned tables above it
	routes  []*route
	blind   []int32 // pipelines whose key is not known or not in the relation: their rows cannot be named, only scanned
	table   any     // the routing table the routes were made from
}

func (s *Stream) session(ctx context.Context) error {
	st, err := s.state(ctx)
	if err != nil {
		return err
	}
	if err := s.standby(ctx, &st); err != nil {
		return err
	}
	s.stats.Standby.Store(false)
	conn, err := s.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("connect for replication: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return fmt.Errorf("identify the server: %w", err)
	}
	if err := s.check(ctx, &st, system); err != nil {
		return err
	}
	if s.o.Prepare != nil {
		// While another sidecar streamed, pipelines may have come that we never heard of: what is matched with nothing is
		// lost.
		if err := s.o.Prepare(ctx); err != nil {
			return err
		}
	}
	ses := &session{
		s: s, conn: conn, buffer: newBuffer(), durable: make(chan pglogrepl.LSN, 1),
		relations: map[uint32]*relation{},
	}
	ses.marks = s.needsMarks()
	if ses.feedback, err = s.feedbackInterval(ctx); err != nil {
		return err
	}
	err = pglogrepl.StartReplication(ctx, conn, quoteSlot(s.o.Slot), st.Checkpoint, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'", fmt.Sprintf("messages '%t'", ses.marks), "publication_names '" +
				strings.ReplaceAll(pgx.Identifier{st.Publication}.Sanitize(), "'", "''") + "'",
		},
	})
	if slotBusy(err) {
		return errStandby
	}
	if err != nil { // if the slot is broken, what the next session finds out about it says so
		return fmt.Errorf("start replication on slot %q: %w", s.o.Slot, err)
	}
	// The slot is the lock. From here on only enqueues with this epoch count.
	if ses.epoch, ses.start, err = s.takeEpoch(ctx, system.Timeline, st.Timeline != system.Timeline); err != nil {
		return fmt.Errorf("take slot %q: %w", s.o.Slot, err)
	}
	ses.pos = position{received: ses.start, durable: ses.start}
	s.stats.Connected.Store(true)
	s.stats.Streaming.Store(true)
	s.stats.Blockers.Store(nil)
	s.stats.DurableLSN.Store(uint64(ses.start))
	s.o.Log.InfoContext(ctx, "streaming", "slot", s.o.Slot, "lsn", ses.start, "epoch", ses.epoch)

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ses.read(gctx) })
	g.Go(func() error { return ses.enqueue(gctx) })
	g.Go(func() error { return ses.watch(gctx) })
	g.Go(func() error { return ses.steady(gctx) })
	return g.Wait()
}

// takeEpoch makes this streamer the only one whose enqueues count, and says what it matches changes with. On a new
// timeline nothing that was under way counts any more: a worker may hold a text, and a streamer may have stored a
// position, of which this server knows nothing. Leases end, and every row is compared.
func (s *Stream) takeEpoch(ctx context.Context, timeline int32, moved bool) (epoch int64, start pglogrepl.LSN,
	err error,
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
	a := s.acknowledgement(epoch)
	ids, err := s.acknowledge(ctx, tx, a)
	if err != nil {
		return 0, 0, err
	}
	if moved {
		if ids, err = slot.VoidLeases(ctx, tx, s.o.Slot); err != nil {
			return 0, 0, err
		}
		if err := queue.RequestScan(ctx, tx, "the server is a standby that was promoted", ids); err != nil {
			return 0, 0, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, 0, err
	}
	s.epoch.Store(epoch)
	s.acknowledged.Store(a.sum())
	s.o.Queue.Wake(ids...)
	return epoch, start, nil
}

// feedbackInterval is how often the server hears of us: well within its patience.
func (s *Stream) feedbackInterval(ctx context.Context) (time.Duration, error) {
	var ms int64
	err := s.o.DB.QueryRow(ctx, "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'").Scan(&ms)
	if err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	const longest = 10 * time.Second
	if ms <= 0 {
		return longest, nil
	}
	return max(min(longest, time.Duration(ms)*time.Millisecond/3), 50*time.Millisecond), nil
}

// read receives messages until the connection or ctx ends. Reading and feedback share this goroutine, since a
// connection is not for two; while the buffer is full it goes on sending.
func (ses *session) read(ctx context.Context) error {
	// Deadlines on the socket instead of a context per message: at 100,000 messages a second the latter costs more than
	// all else.
	stop := context.AfterFunc(ctx, func() { _ = ses.conn.Conn().SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	next := time.Now()
	silent := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			ses.lastWords(ctx)
			return err
		}
		ses.noteDurable()
		if now := time.Now(); !now.Before(next) {
			// Ask for an answer when nothing came for two intervals: a half-open connection never says that it is dead.
			quiet := now.Sub(silent)
			if quiet > 6*ses.feedback {
				return fmt.Errorf("no word from the server for %s", quiet.Round(time.Second))
			}
			if err := ses.send(ctx, quiet > 2*ses.feedback); err != nil {
				return err
			}
			next = now.Add(ses.feedback)
			_ = ses.conn.Conn().SetReadDeadline(next)
			if ctx.Err() != nil { // it may have set its deadline before ours
				continue
			}
		}
		//nolint:forbidigo,contextcheck // see above: the deadline is on the socket
		message, err := ses.conn.ReceiveMessage(context.Background())
		if err != nil {
			if pgconn.Timeout(err) {
				continue
			}
			return fmt.Errorf("receive: %w", err)
		}
		silent = time.Now()
		ses.s.stats.LastMessageAt.Store(silent.UnixNano())
		switch m := message.(type) {
		case *pgproto3.CopyData:
			reply, err := ses.copyData(ctx, m.Data)
			if err != nil {
				return err
			}
			if reply {
				next = time.Time{}
			}
		case *pgproto3.ErrorResponse:
			return &undecodedError{pgconn.ErrorResponseToPgError(m)}
		case *pgproto3.CopyDone:
			return errors.New("the server ended the stream")
		}
		for ses.buffer.full() {
			if err := ses.hold(ctx, &next); err != nil {
				return err
			}
		}
	}
}

// hold waits for room in the buffer, and keeps the server informed meanwhile.
func (ses *session) hold(ctx context.Context, next *time.Time) error {
	timer := time.NewTimer(time.Until(*next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ses.buffer.room:
	case lsn := <-ses.durable:
		ses.setDurable(lsn)
	case <-timer.C:
		if err := ses.send(ctx, false); err != nil {
			return err
		}
		*next = time.Now().Add(ses.feedback)
		_ = ses.conn.Conn().SetReadDeadline(*next)
	}
	return nil
}

// copyData handles one frame of the stream; reply tells that the server wants to hear from us now.
func (ses *session) copyData(ctx context.Context, data []byte) (reply bool, err error) {
	if len(data) == 0 {
		return false, fmt.Errorf("%w: an empty frame", ErrMalformed)
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := parseKeepalive(data[1:])
		if err != nil {
			return false, err
		}
		ses.s.stats.ServerLSN.Store(uint64(k.ServerWALEnd))
		if ses.tx == nil {
			// Everything before is decoded. It becomes a checkpoint only when the buffer is empty and it is worth the WAL.
			ses.pos.received = max(ses.pos.received, k.ServerWALEnd)
			// A server that shuts down asks, and waits until all it sent is confirmed: then it is worth it at once.
			ses.buffer.commit(k.ServerWALEnd, k.ReplyRequested)
		}
		return k.ReplyRequested, nil
	case pglogrepl.XLogDataByteID:
		x, err := parseXLogData(data[1:])
		if err != nil {
			return false, err
		}
		ses.pos.received = max(ses.pos.received, x.WALStart)
		ses.s.stats.Bytes.Add(int64(len(x.WALData)))
		ses.s.stats.ServerLSN.Store(uint64(x.ServerWALEnd))
		return false, ses.decode(ctx, x.WALData)
	}
	return false, fmt.Errorf("%w: a frame of type %q", ErrMalformed, data[:1])
}

// decode handles one pgoutput message.
func (ses *session) decode(ctx context.Context, data []byte) error {
	if len(data) > 0 && data[0] == database.Stub {
		return ses.stub(ctx, data[1:])
	}
	message, err := parse(data)
	if err != nil {
		return err
	}
	switch m := message.(type) {
	case *pglogrepl.BeginMessage:
		ses.tx = &transaction{begin: m, maker: mark.NewMaker(ses.s.o.MarkKey, m.Xid)}
		ses.skip = m.FinalLSN < ses.start
	case *pglogrepl.CommitMessage:
		return ses.commit(m)
	case *pglogrepl.RelationMessage:
		return ses.relation(ctx, m)
	case *pglogrepl.LogicalDecodingMessage:
		ses.logicalMessage(ctx, m)
	case *pglogrepl.InsertMessage:
		return ses.change(m.RelationID, m.Tuple, nil, true)
	case *pglogrepl.UpdateMessage:
		return ses.change(m.RelationID, m.NewTuple, m.OldTuple, false)
	case *pglogrepl.DeleteMessage:
		return ses.change(m.RelationID, nil, m.OldTuple, false)
	case *pglogrepl.TruncateMessage:
		return ses.truncate(m)
	}
	return nil // types and origins do not matter
}

func (ses *session) commit(m *pglogrepl.CommitMessage) error {
	if ses.tx == nil {
		return fmt.Errorf("%w: a commit without a begin", ErrMalformed)
	}
	if ses.skip {
		ses.s.stats.Replayed.Add(1)
	}
	ses.tx, ses.skip = nil, false
	ses.s.stats.Transactions.Add(1)
	ses.pos.received = max(ses.pos.received, m.TransactionEndLSN)
	ses.s.stats.ReceivedLSN.Store(uint64(ses.pos.received))
	ses.buffer.commit(m.TransactionEndLSN, false)
	return nil
}

func (ses *session) logicalMessage(ctx context.Context, m *pglogrepl.LogicalDecodingMessage) {
	if !m.Transactional || ses.tx == nil || m.Prefix != mark.WriteBack || ses.s.o.IgnoreMarks {
		return
	}
	if err := ses.tx.mark(m.Content); err != nil {
		ses.s.o.Log.DebugContext(ctx, "mark not understood", "error", err)
	}
}

// stub handles what stands for a message that is too large to be held. A logical message of that size is nobody's
// mark. The row of a change is not known, but its table is: its rows are compared.
func (ses *session) stub(ctx context.Context, data []byte) error {
	const size = 5 // the type it had, and four bytes
	if len(data) != size {
		return fmt.Errorf("%w: a stub of %d bytes", ErrMalformed, len(data))
	}
	ses.s.stats.Oversized.Add(1)
	switch data[0] {
	case 'M':
		if ses.tx != nil {
			ses.tx.begun, ses.tx.tags = true, nil
		}
		return nil
	case 'I', 'U', 'D':
		if ses.skip {
			return nil
		}
		rel, err := ses.routesOf(binary.BigEndian.Uint32(data[1:]))
		if err != nil {
			return err
		}
		ses.scanAll(rel)
		ses.s.o.Log.WarnContext(ctx, "a change is too large to be read: the rows of its table are compared",
			"table", rel.message.Namespace+"."+rel.message.RelationName, "limit_bytes", database.LargestChange)
		return nil
	}
	return &gapError{fmt.Sprintf("a message of type %q is larger than %d bytes", data[:1], database.LargestChange)}
}

// scanAll asks for a scan of every pipeline that a relation leads to.
func (ses *session) scanAll(rel *relation) {
	for _, r := range rel.routes {
		ses.buffer.scan(r.pipeline.ID)
	}
	for _, id := range rel.blind {
		ses.buffer.scan(id)
	}
}

// relation notes a table that the stream announces, and what it may be a partition of.
func (ses *session) relation(ctx context.Context, m *pglogrepl.RelationMessage) error {
	// pg_partition_ancestors gives nothing for a plain table, and an error for none at all: hence the look into pg_class.
	rows, err := ses.s.o.DB.Query(ctx,
		`SELECT a.relid::oid FROM pg_class AS c CROSS JOIN LATERAL pg_partition_ancestors(c.oid) AS a (relid)
		WHERE c.oid = $1`, m.RelationID)
	if err != nil {
		return fmt.Errorf("find the partitioned table of %s.%s: %w", m.Namespace, m.RelationName, err)
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return fmt.Errorf("find the partitioned table of %s.%s: %w", m.Namespace, m.RelationName, err)
	}
	ses.relations[m.RelationID] = &relation{message: m, oids: append(oids, m.RelationID)}
	return nil
}

// routesOf returns the routes of a relation, made anew when the pipelines changed.
func (ses *session) routesOf(id uint32) (*relation, error) {
	rel, ok := ses.relations[id]
	if !ok {
		return nil, fmt.Errorf("%w: a change of relation %d, which was not announced", ErrMalformed, id)
	}
	table := ses.s.routes.Load()
	if rel.table == any(table) {
		return rel, nil
	}
	rel.table, rel.routes, rel.blind = table, nil, nil
	seen := map[int32]bool{}
	for _, oid := range rel.oids {
		for _, p := range (*table)[oid] {
			if seen[p.ID] {
				continue
			}
			seen[p.ID] = true
			if r := newRoute(p, rel.message); r != nil {
				rel.routes = append(rel.routes, r)
			} else {
				rel.blind = append(rel.blind, p.ID)
			}
		}
	}
	return rel, nil
}

func (ses *session) change(relationID uint32, newTuple, oldTuple *pglogrepl.TupleData, insert bool) error {
	if ses.skip {
		return nil
	}
	if ses.tx == nil {
		return fmt.Errorf("%w: a change outside a transaction", ErrMalformed)
	}
	rel, err := ses.routesOf(relationID)
	if err != nil {
		return err
	}
	width := len(rel.message.Columns)
	row, err := tuple(newTuple, width)
	if err != nil {
		return err
	}
	old, err := tuple(oldTuple, width)
	if err != nil {
		return err
	}
	ses.s.stats.Changes.Add(1)
	ses.tx.begun = true
	for _, id := range rel.blind {
		ses.buffer.scan(id)
	}
	if row == nil && old == nil {
		return fmt.Errorf("%w: a delete without a key", ErrMalformed)
	}
	for _, r := range rel.routes {
		r.change(ses.tx, row, old, insert, ses.buffer)
	}
	return nil
}

// truncate asks for a scan: which rows are gone is not in the WAL, and there may be millions.
func (ses *session) truncate(m *pglogrepl.TruncateMessage) error {
	if ses.skip {
		return nil
	}
	for _, id := range m.RelationIDs {
		rel, err := ses.routesOf(id)
		if err != nil {
			return err
		}
		ses.scanAll(rel)
	}
	return nil
}

// noteDurable takes the newest durable position from the enqueuer, without waiting.
func (ses *session) noteDurable() {
	select {
	case lsn := <-ses.durable:
		ses.setDurable(lsn)
	default:
	}
}

func (ses *session) setDurable(lsn pglogrepl.LSN) {
	ses.pos.durable = max(ses.pos.durable, lsn)
}

// send tells the server where we are. All three positions are set: pglogrepl would take a zero flush position for the
// write position and so confirm what is not durable.
func (ses *session) send(ctx context.Context, ask bool) error {
	received := max(ses.pos.received, ses.pos.durable)
	err := pglogrepl.SendStandbyStatusUpdate(ctx, ses.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: received, WALFlushPosition: ses.pos.durable, WALApplyPosition: ses.pos.durable,
		ClientTime: time.Now(), ReplyRequested: ask,
	})
	if err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	return failpoint.Hit("replication/after-feedback")
}

// lastWords confirms what is durable before the connection closes, so that a restart finds nothing to repeat.
func (ses *session) lastWords(ctx context.Context) {
	ses.noteDurable()
	saying, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = ses.send(saying, false) // the connection may be gone already; then the server asks nobody
}

// longestRest bounds how long what follows a batch waits for company.
const longestRest = 25 * time.Millisecond

// enqueue makes what was read durable: at once when idle. What comes while a commit is running, and for as long
// again, goes together: beside writers at full speed this halves the transactions of ours that they share the server
// with.
func (ses *session) enqueue(ctx context.Context) error {
	saved, savedAt := ses.start, time.Now()
	idle := time.NewTicker(time.Minute)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ses.buffer.changed:
		case <-idle.C:
		}
		t := ses.buffer.take()
		ses.s.stats.OwnWrites.Add(t.own)
		if t.tooLong > 0 {
			ses.s.stats.TooLong.Add(t.tooLong)
			ses.s.o.Log.WarnContext(ctx, "rows left out: their keys are too long for an index of the queue", "changes",
				t.tooLong)
		}
		work := len(t.changes) > 0 || len(t.scans) > 0
		if moved := t.upTo > saved; !work && (!moved || !t.hurry && t.upTo < saved+idleBytes &&
			time.Since(savedAt) < idleTime) {
			continue
		}
		b := queue.Batch{
			Slot: ses.s.o.Slot, Epoch: ses.epoch, Changes: t.changes, Scans: t.scans,
			ScanReason: "changes that do not name their rows",
		}
		if t.upTo > saved {
			b.Checkpoint = t.upTo
		}
		began := time.Now()
		done, err := ses.enqueueBatch(ctx, b)
		if err != nil {
			return err
		}
		took := time.Since(began)
		ses.s.stats.Made.Add(int64(done.Made))
		ses.s.stats.Joined.Add(int64(done.Joined))
		ses.s.stats.Dropped.Add(int64(done.Dropped))
		if len(b.Scans) > 0 && ses.s.o.OnCatalogue != nil {
			ses.s.o.OnCatalogue()
		}
		if b.Checkpoint == 0 {
			continue
		}
		saved, savedAt = t.upTo, time.Now()
		ses.s.stats.DurableLSN.Store(uint64(saved))
		ses.s.stats.Trouble.Store(nil)
		select {
		case <-ses.durable: // an older one the reader has not taken yet
		default:
		}
		ses.durable <- saved
		if len(t.changes) < maxBatch && !wait(ctx, min(took, longestRest)) {
			return ctx.Err()
		}
	}
}

// enqueueBatch enqueues a batch, again and again while it loses against somebody's locks: a long write-back or an
// operator's bulk action is no reason to give up the slot.
func (ses *session) enqueueBatch(ctx context.Context, b queue.Batch) (queue.Enqueued, error) {
	for try := 1; ; try++ {
		done, err := ses.s.o.Queue.Enqueue(ctx, ses.s.o.DB, b)
		if fault := database.Judge(err); fault != database.Locked && fault != database.Conflict {
			return done, err
		}
		ses.s.o.Log.WarnContext(ctx, "enqueue lost against a lock", "error", err, "try", try)
		if !wait(ctx, min(time.Duration(try)*20*time.Millisecond, time.Second)) {
			return done, ctx.Err()
		}
	}
}
