package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// conns limits the number of open connections. A new one replaces another: first one of a client that has more than a
// quarter, then one of an unidentified client, then an idle one, each time the one that has been silent longest. So
// clients that only hold connections, or send endless requests, cannot keep others out. A connection that is answering
// an identified client is never replaced.
type conns struct {
	net.Listener

	most int

	mu   sync.Mutex
	open map[*conn]struct{}
}

// limit returns a listener with at most so many connections. Its attach must be called for the server.
func limit(l net.Listener, most int) *conns {
	return &conns{Listener: l, most: most, open: map[*conn]struct{}{}}
}

// conn is a connection and its client. The listener's mutex guards its fields.
type conn struct {
	net.Conn

	of     *conns
	client string // its name or, before it is identified, its network
	known  bool   // the client is identified
	busy   int    // requests in progress
	silent time.Time
}

// Accept waits for a connection.
func (l *conns) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, of: l, client: Network(accepted.RemoteAddr().String()), silent: time.Now()}
		if l.admit(c) {
			return c, nil
		}
		_ = accepted.Close()
	}
}

// admit makes room for a connection, and reports whether it could.
func (l *conns) admit(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		gone := l.dispensableLocked()
		if gone == nil {
			return false
		}
		delete(l.open, gone)
		_ = gone.Conn.Close()
	}
	l.open[c] = struct{}{}
	return true
}

// dispensableLocked returns the connection to replace; nil if all are busy.
func (l *conns) dispensableLocked() (gone *conn) {
	has := map[string]int{}
	for c := range l.open {
		has[c.client]++
	}
	many := func(c *conn) bool { return has[c.client] > l.most/4 } //nolint:mnd // a quarter
	for c := range l.open {
		switch {
		case c.busy > 0 && c.known:
		case gone == nil:
			gone = c
		case many(c) != many(gone):
			if many(c) {
				gone = c
			}
		case gone.known && !c.known, gone.known == c.known && c.silent.Before(gone.silent):
			gone = c
		}
	}
	return gone
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// attach makes a server report the state of its connections. With everybodyIsKnown, any request identifies its client;
// otherwise the handler calls Known.
func (l *conns) attach(s *http.Server, everybodyIsKnown bool) {
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	h := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin(everybodyIsKnown)
			defer c.end()
		}
		h.ServeHTTP(w, r)
	})
}

func (c *conn) begin(known bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy++
	c.known = c.known || known
}

func (c *conn) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy--
	c.silent = time.Now()
}

// Known records that the client of a request is identified: its name, or "" if there are no names.
func Known(ctx context.Context, name string) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.client, c.known = "token "+name, true
	}
}

// Shares limits how much each client uses at the same time.
type Shares struct {
	Most int // per client; 0: no limit

	mu sync.Mutex
	of map[string]int // by client name
}

// Take takes one unit of a client's share, and reports whether there was one. GiveBack returns it.
func (s *Shares) Take(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Most > 0 && s.of[name] >= s.Most {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[name]++
	return true
}

// GiveBack returns what Take took.
func (s *Shares) GiveBack(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name]--; s.of[name] <= 0 {
		delete(s.of, name)
	}
}

// Rates limits the request rate of each client.
type Rates struct {
	PerSecond int // per client, with a burst of twice as many; 0: no limit

	mu sync.Mutex
	of map[string]*rate.Limiter // by client name
}

// mostRates limits the number of stored clients; beyond it, all are forgotten.
const mostRates = 10_000

// Allow reports whether a client may send a request now.
func (r *Rates) Allow(name string) bool {
	if r.PerSecond == 0 {
		return true
	}
	r.mu.Lock()
	l, ok := r.of[name]
	if !ok {
		if r.of == nil || len(r.of) >= mostRates {
			r.of = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(rate.Limit(r.PerSecond), 2*r.PerSecond)
		r.of[name] = l
	}
	r.mu.Unlock()
	return l.Allow()
}

// Network returns the origin of a client without a token: its address, or for IPv6 its /64 network, because one machine
// has all its addresses.
func Network(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	const machine = 64
	addr, err := netip.ParseAddr(remote)
	if addr = addr.Unmap(); err == nil && addr.Is6() {
		if prefix, err := addr.WithZone("").Prefix(machine); err == nil {
			return prefix.String()
		}
	}
	return remote
}
