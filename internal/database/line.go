package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
// It is for one goroutine at a time. Where connections of its pool are not kept for long, it is not either.
type Line struct {
	pool    *pgxpool.Pool // straight to a server
	timeout time.Duration // of a statement; 0: none
	thrifty bool          // its pool does not keep for long what is idle

	using sync.Mutex // held from Conn to Failed
	conn  *pgx.Conn
	until time.Time
	idle  *time.Timer // closes it; nil: nothing does
}

// NewLine returns a line that connects when it is first used.
func NewLine(pool *pgxpool.Pool, timeout time.Duration) *Line {
	return &Line{pool: pool, timeout: timeout, thrifty: pool.Config().MaxConnIdleTime <= thriftyIdle}
}

// Anew is a condition that has code of users run as it does elsewhere: for the rest of the transaction statements are
// planned as ever. It holds always, and belongs where it is looked at before that code runs.
var Anew = "(SELECT (row(" + strings.TrimPrefix(planAnew, "SELECT ") + ")) IS NOT NULL)"

// Conn returns the line's connection. The caller tells with Failed when it is done with it, and what went wrong.
func (l *Line) Conn(ctx context.Context) (DB, error) {
	l.using.Lock()
	conn, err := l.connected(ctx)
	if err != nil {
		l.using.Unlock()
		return nil, err
	}
	return lined{conn}, nil
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
	defer l.using.Unlock()
	if _, refused := errors.AsType[*pgconn.PgError](err); err != nil && !refused {
		l.end(ctx)
	}
	const kept = 3 * time.Second // longer than by its pool: who changes a row now and then shall find it
	switch {
	case !l.thrifty:
	case l.idle != nil:
		l.idle.Reset(kept)
	default:
		l.idle = time.AfterFunc(kept, func() {
			if l.using.TryLock() {
				defer l.using.Unlock()
				l.end(context.WithoutCancel(ctx))
			}
		})
	}
}

// Close ends the connection.
func (l *Line) Close(ctx context.Context) {
	if l == nil {
		return
	}
	l.using.Lock()
	defer l.using.Unlock()
	l.end(ctx)
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
