package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Line is a connection outside the pool for a series of small transactions, whose setup would otherwise cost more than
// their work. All of them use the same warm server process. Its session is set up once: statements are planned once, as
// PlanOnce does, every row is found by an index, and a commit does not wait for a replica. Larger transactions say so
// with PlanOnce. Users' code must not run with these settings: see Anew.
//
// Only one goroutine may use it at a time. Between transactions, Listen may use the connection.
type Line struct {
	pool    *pgxpool.Pool // connects to a server, not a pooler
	timeout time.Duration // of a statement; 0: none

	free   chan struct{}                      // full while the connection is unused
	wanted atomic.Int32                       // number of callers waiting; Listen yields to them
	pause  atomic.Pointer[context.CancelFunc] // interrupts Listen
	conn   *pgx.Conn
	until  time.Time
}

// NewLine returns a line that connects when it is first used.
func NewLine(pool *pgxpool.Pool, timeout time.Duration) *Line {
	l := &Line{pool: pool, timeout: timeout, free: make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

// Anew is an SQL condition that is always true. Evaluated before users' code runs, it restores normal planning for the
// rest of the transaction.
var Anew = "(SELECT (row(" + strings.TrimPrefix(planAnew, "SELECT ") + ")) IS NOT NULL)"

// Conn returns the line's connection. The caller returns it with Failed, which takes the error, if any.
func (l *Line) Conn(ctx context.Context) (DB, error) {
	l.take()
	conn, err := l.connected(ctx)
	if err != nil {
		l.free <- struct{}{}
		return nil, err
	}
	return lined{conn}, nil
}

// take waits until the connection is unused, and interrupts Listen.
func (l *Line) take() {
	l.wanted.Add(1)
	if pause := l.pause.Load(); pause != nil {
		(*pause)()
	}
	<-l.free
	l.wanted.Add(-1)
}

// Listen calls heed for every notification on a channel until ctx ends, or until the connection fails; then it returns
// an error. It calls heed with "" when earlier notifications may have been missed. Nothing is stored: any role can send
// any number of notifications.
func (l *Line) Listen(ctx context.Context, channel string, heed func(payload string)) error {
	const longest = 10 * time.Second // a waiter reconnects after this long, in case the connection is dead
	defer l.Close(ctx)               // unread notifications would stay in the server's shared queue
	for on := (*pgx.Conn)(nil); ctx.Err() == nil; {
		reading, pause := context.WithTimeout(ctx, longest)
		l.pause.Store(&pause)
		<-l.free
		var err error
		if l.wanted.Load() == 0 {
			on, err = l.listen(ctx, reading, on, channel, heed)
		}
		l.free <- struct{}{}
		pause()
		if err != nil {
			return err
		}
	}
	return nil
}

// listen reads notifications. on is the connection that already listens.
func (l *Line) listen(ctx, reading context.Context, on *pgx.Conn, channel string, heed func(string)) (*pgx.Conn,
	error,
) {
	conn, err := l.connected(ctx)
	if err != nil {
		return nil, err
	}
	if conn != on {
		Heed(conn.PgConn(), heed)
		if _, err := conn.Exec(ctx, "LISTEN "+Quote(channel)); err != nil {
			return nil, err
		}
		heed("")
	}
	_, err = Hear(reading, conn.PgConn())
	return conn, err
}

func (l *Line) connected(ctx context.Context) (*pgx.Conn, error) {
	if l.conn != nil && !l.conn.IsClosed() && time.Now().Before(l.until) {
		return l.conn, nil
	}
	l.end(ctx)
	pooled, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack()
	_, err = conn.Exec(ctx, planning("force_generic_plan", "off", false)+", pg_catalog.set_config('statement_timeout', $1, false)"+
		", pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit') = 'off'"+
		" THEN 'off' ELSE 'local' END, false)", fmt.Sprintf("%dms", l.timeout.Milliseconds()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up a session: %w", err), conn.Close(ctx))
	}
	l.conn, l.until = conn, time.Now().Add(l.pool.Config().MaxConnLifetime)
	return conn, nil
}

// Failed returns the connection. It closes it first if err is set and is not just a rejected statement.
func (l *Line) Failed(ctx context.Context, err error) {
	if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && !refused {
		l.end(ctx)
	}
	l.free <- struct{}{}
}

// Close ends the connection.
func (l *Line) Close(ctx context.Context) {
	if l == nil {
		return
	}
	l.take()
	l.end(ctx)
	l.free <- struct{}{}
}

func (l *Line) end(ctx context.Context) {
	if l.conn == nil {
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = l.conn.Close(closing) // the server may be gone
	l.conn = nil
}
