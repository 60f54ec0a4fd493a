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

// Line is a connection beside those of a pool, for pieces of work that come one after the other and are so small that
// what surrounds them would cost more than they do; what is larger says so by PlanOnce. All go to the same server
// process, which is warm; its session says once what else each transaction is told: that statements are planned once
// and find every row by an index, as PlanOnce has it, and that a commit waits for no replica. Code of users must not
// run so: see Anew.
//
// It is for one goroutine at a time. Between two pieces of work one may listen on it.
type Line struct {
	pool    *pgxpool.Pool // straight to a server
	timeout time.Duration // of a statement; 0: none

	free   chan struct{}                      // is full while nobody uses the connection
	wanted atomic.Int32                       // by so many: who listens makes room
	pause  atomic.Pointer[context.CancelFunc] // of who listens
	conn   *pgx.Conn
	until  time.Time
}

// NewLine returns a line that connects when it is first used.
func NewLine(pool *pgxpool.Pool, timeout time.Duration) *Line {
	l := &Line{pool: pool, timeout: timeout, free: make(chan struct{}, 1)}
	l.free <- struct{}{}
	return l
}

// Anew is a condition that has code of users run as it does elsewhere: for the rest of the transaction statements are
// planned as ever. It holds always, and belongs where it is looked at before that code runs.
var Anew = "(SELECT (row(" + strings.TrimPrefix(planAnew, "SELECT ") + ")) IS NOT NULL)"

// Conn returns the line's connection. The caller tells with Failed when it is done with it, and what went wrong.
func (l *Line) Conn(ctx context.Context) (DB, error) {
	l.take()
	conn, err := l.connected(ctx)
	if err != nil {
		l.free <- struct{}{}
		return nil, err
	}
	return lined{conn}, nil
}

// take waits until nobody uses the connection. Who listens is interrupted.
func (l *Line) take() {
	l.wanted.Add(1)
	if pause := l.pause.Load(); pause != nil {
		(*pause)()
	}
	<-l.free
	l.wanted.Add(-1)
}

// Listen has heed told of every notification on a channel until ctx ends, or the connection does; then it returns an
// error. heed is called with "" when what was said before may have gone unheard. Nothing of it is kept: anybody may
// notify, as often as he likes.
func (l *Line) Listen(ctx context.Context, channel string, heed func(payload string)) error {
	const longest = 10 * time.Second // who waits for longer is taken for one whose answer is lost
	defer l.Close(ctx)               // what nobody reads would stay in the server's one queue
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

// listen reads what the line is told. on is the connection on which it listens already.
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

// Failed takes a new connection the next time if there was an error, unless the server has merely refused a statement.
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
