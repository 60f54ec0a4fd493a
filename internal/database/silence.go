package database

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// defaultPatience is longer than a healthy server's answer takes on the network, but not longer than statements may
// run.
const defaultPatience = 20 * time.Second

// sockets are the open connections of a pool. A connection that has waited too long for an answer is closed if no
// server process works on that answer: the host vanished and another took over, or the request was lost on the way.
// Neither case causes an error, and statements have no deadline because they may take hours. The check uses its own
// connection, so it works even when every connection of the pool waits. It does not work behind a pooler, which hides
// the server process.
type sockets struct {
	patience time.Duration
	config   *pgx.ConnConfig

	mu    sync.Mutex
	open  map[*socket]struct{}
	timer *time.Timer // runs while a connection is open
}

// socket is one connection of a pool.
type socket struct {
	net.Conn
	of     *sockets
	asked  atomic.Int64 // Unix nanoseconds since which it waits for an answer; 0: it does not wait
	pid    uint32       // of the server process; 0 while connecting
	server string       // when the server was started; both guarded by of.mu
}

func (s *sockets) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	one := &socket{Conn: conn, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		s.timer = time.AfterFunc(s.patience, s.look)
	}
	s.open[one] = struct{}{}
	return one, nil
}

// know records which server process a new connection leads to.
func (s *sockets) know(conn *pgconn.PgConn, server string) {
	raw := conn.Conn()
	if encrypted, ok := raw.(*tls.Conn); ok {
		raw = encrypted.NetConn()
	}
	if one, ok := raw.(*socket); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		one.pid, one.server = conn.PID(), server
	}
}

func (c *socket) Read(p []byte) (int, error) {
	c.asked.Store(time.Now().UnixNano())
	defer c.asked.Store(0)
	return c.Conn.Read(p)
}

func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	if len(c.of.open) == 0 {
		c.of.timer.Stop()
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// look closes connections that will never get an answer.
func (s *sockets) look() {
	waiting := map[*socket]int64{}
	s.mu.Lock()
	for c := range s.open {
		if since := c.asked.Load(); since != 0 && c.pid != 0 && time.Since(time.Unix(0, since)) >= s.patience {
			waiting[c] = since
		}
	}
	s.mu.Unlock()
	if len(waiting) > 0 && direct(s.config) {
		for _, c := range s.dead(waiting) {
			_ = c.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		s.timer.Reset(s.patience)
	}
}

// dead returns the connections to a server that has since restarted, and those waiting for an answer that no server
// process works on. It also ends the server side of the latter: a process in the middle of sending keeps its locks
// until TCP gives up.
func (s *sockets) dead(waiting map[*socket]int64) (list []*socket) {
	//nolint:forbidigo // a timer calls it with none
	ctx, cancel := context.WithTimeout(context.Background(), defaultConnectTimeout)
	defer cancel()
	config := s.config.Copy()
	config.DialFunc = dial
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close(ctx) }()
	var server string
	var busy []uint32 // PIDs of processes that do not wait for a client
	var left []uint32 // PIDs of the connections to close
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_postmaster_start_time()::text, ARRAY(SELECT a.pid::oid
		FROM pg_catalog.pg_stat_get_activity(NULL) AS a WHERE a.wait_event_type IS DISTINCT FROM 'Client')`).
		Scan(&server, &busy); err != nil {
		return nil
	}
	s.mu.Lock()
	for c := range s.open {
		since := waiting[c]
		switch {
		case c.pid == 0:
		case c.server != server:
			list = append(list, c)
		case since != 0 && since == c.asked.Load() && !slices.Contains(busy, c.pid):
			list, left = append(list, c), append(left, c.pid)
		}
	}
	s.mu.Unlock()
	if len(left) == 0 {
		return list
	}
	_, _ = conn.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_get_activity(NULL) AS a
		WHERE a.pid::oid = ANY ($1) AND a.wait_event_type = 'Client' AND a.state <> 'idle' AND a.usesysid =
			(SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = session_user)
			AND a.application_name = pg_catalog.current_setting('application_name')`, left)
	return list
}
