package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/database"
)

// wire is the connection that streams.
type wire interface {
	// receive returns the next message, or nil after the deadline.
	receive() (pgproto3.BackendMessage, error)
	// until sets the deadline of receive, including one that is already waiting.
	until(deadline time.Time)
	// heard returns how many bytes the server has sent, including incomplete messages.
	heard() int64
	// status sends our positions to the server.
	status(ctx context.Context, update pglogrepl.StandbyStatusUpdate) error
}

type connWire struct{ conn *pgconn.PgConn }

func (w connWire) receive() (pgproto3.BackendMessage, error) {
	//nolint:forbidigo // the deadline is on the socket: see read
	message, err := w.conn.ReceiveMessage(context.Background())
	if pgconn.Timeout(err) {
		return nil, nil //nolint:nilnil // reaching the deadline is no error
	}
	return message, err
}

func (w connWire) until(deadline time.Time) { _ = w.conn.Conn().SetReadDeadline(deadline) }

func (w connWire) heard() int64 { return database.Heard(w.conn) }

func (w connWire) status(ctx context.Context, update pglogrepl.StandbyStatusUpdate) error {
	return pglogrepl.SendStandbyStatusUpdate(ctx, w.conn, update)
}

// read receives messages until the connection or ctx ends. Reading and feedback share this goroutine, since a
// connection is not safe for concurrent use. Feedback continues while the buffer is full.
func (ses *session) read(ctx context.Context) error {
	// Socket deadlines replace a context per message: at 100,000 messages a second the context would dominate the cost.
	stop := context.AfterFunc(ctx, func() { ses.wire.until(time.Unix(1, 0)) })
	defer stop()
	next := time.Now()
	silent, heard := time.Now(), ses.wire.heard()
	var unheard *Trouble
	for {
		if err := ctx.Err(); err != nil {
			ses.lastWords(ctx)
			return err
		}
		ses.noteDurable()
		if now := time.Now(); !now.Before(next) {
			// Request a reply after two silent intervals: a half-open connection never reports that it is dead.
			quiet := now.Sub(silent)
			if quiet > max(ses.patience, 6*ses.feedback) {
				return fmt.Errorf("no message from the server for %s", quiet.Round(time.Second))
			}
			if quiet >= 3*ses.feedback && unheard == nil { // a reply was requested and did not come
				unheard = &Trouble{Since: silent, Err: errors.New("the server does not reply")}
				ses.s.stats.Trouble.CompareAndSwap(nil, unheard)
			}
			if err := ses.send(ctx, quiet > 2*ses.feedback); err != nil {
				return err
			}
			next = now.Add(ses.feedback)
			ses.wire.until(next)
			if ctx.Err() != nil { // its deadline may have been overwritten by ours
				continue
			}
		}
		asked := time.Now()
		message, err := ses.wire.receive()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		n := ses.wire.heard()
		if message == nil && n == heard {
			continue
		}
		silent, heard = time.Now(), n
		if unheard != nil {
			ses.s.stats.Trouble.CompareAndSwap(unheard, nil)
			unheard = nil
		}
		if message == nil { // part of a large message arrived
			continue
		}
		ses.waited = silent.Sub(asked) > atOnce
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
		if ses.waited {
			ses.nap(ctx)
		}
		for ses.buffer.pour() {
			if err := ses.hold(ctx, &next); err != nil {
				return err
			}
			silent = time.Now() // nothing was read meanwhile
		}
	}
}

// atOnce is the longest receive that counts as immediate. A longer one waited for its message.
const atOnce = 20 * time.Microsecond

// nap lets messages gather while the enqueuer rests: otherwise each message wakes us although nothing takes it.
func (ses *session) nap(ctx context.Context) {
	const longest, before = 10 * time.Millisecond, 2 * time.Millisecond
	if rest := min(time.Until(time.Unix(0, ses.restsUntil.Load()))-before, longest); rest > 0 {
		sleep.For(ctx, rest)
	}
}

// hold waits for room in the buffer and sends feedback meanwhile.
func (ses *session) hold(ctx context.Context, next *time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ses.buffer.room:
	case lsn := <-ses.durable:
		ses.setDurable(lsn)
	case <-time.After(time.Until(*next)):
		if err := ses.send(ctx, false); err != nil {
			return err
		}
		*next = time.Now().Add(ses.feedback)
		ses.wire.until(*next)
	}
	return nil
}

// copyData handles one frame of the stream. reply reports whether the server requests a reply.
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
			// Everything before is decoded. It is saved only if the buffer is empty and it moved far enough.
			ses.pos.received = max(ses.pos.received, k.ServerWALEnd)
			ses.s.stats.ReceivedLSN.Store(uint64(ses.pos.received))
			// A server that shuts down requests a reply and waits until everything is confirmed, so save at once.
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

// noteDurable takes the newest durable position from the enqueuer without blocking.
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

// send reports our positions to the server. All three must be set: pglogrepl replaces a zero flush position by the
// write position, which would confirm WAL that is not durable.
func (ses *session) send(ctx context.Context, ask bool) error {
	received := max(ses.pos.received, ses.pos.durable)
	err := ses.wire.status(ctx, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: received, WALFlushPosition: ses.pos.durable, WALApplyPosition: ses.pos.durable,
		ClientTime: time.Now(), ReplyRequested: ask,
	})
	if err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	return failpoint.Hit("replication/after-feedback")
}

// lastWords confirms the durable position before the connection closes, so that a restart repeats nothing.
func (ses *session) lastWords(ctx context.Context) {
	ses.noteDurable()
	saying, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = ses.send(saying, false) // the connection may already be gone
}
