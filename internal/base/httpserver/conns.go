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

// conns bounds how many connections are open at a time. One more takes the place of another: first of those of a client
// that has more than a quarter, then of those whose client has not yet shown who it is, then of those that are idle,
// each time the one that has been so longest. Clients that only hold connections, or send requests that do not end,
// keep nobody out that way. A connection that answers a client which has shown who it is is never ended for another.
type conns struct {
	net.Listener

	most int

	mu   sync.Mutex
	open map[*conn]struct{}
}

// limit returns a listener with at most so many connections. attach belongs to it.
func limit(l net.Listener, most int) *conns {
	return &conns{Listener: l, most: most, open: map[*conn]struct{}{}}
}

// conn is a connection with what is known of its client. Its fields are the listener's.
type conn struct {
	net.Conn

	of     *conns
	client string // its name or, before it has shown who it is, where it comes from
	known  bool   // it has
	busy   int    // requests that are being answered
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

// admit makes room for a connection, and reports whether there is some.
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

// dispensableLocked returns the connection that goes for another; nil if all are busy.
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

// Close ends the connection and gives its place back.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

type connKey struct{}

// attach makes a server tell the listener what its connections do. Without known, a client that asks anything has shown
// who it is; otherwise the server calls Known.
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

// Known says that the client of a request has shown who it is: its name, or "" if there are none.
func Known(ctx context.Context, name string) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.client, c.known = "token "+name, true
	}
}

// Shares counts what each client has at a time, so that none takes all that is there.
type Shares struct {
	Most int // of one client; 0: nobody is bounded

	mu sync.Mutex
	of map[string]int // by name of the client
}

// Take takes one of a client's share, and reports whether it had one left. GiveBack ends that.
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

// GiveBack gives back what Take took.
func (s *Shares) GiveBack(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name]--; s.of[name] <= 0 {
		delete(s.of, name)
	}
}

// Rates bound how often each client may ask.
type Rates struct {
	PerSecond int // of one client, and twice as many at once; 0: nobody is bounded

	mu sync.Mutex
	of map[string]*rate.Limiter // by name of the client
}

// mostRates bounds how many clients are remembered; then all are forgotten.
const mostRates = 10_000

// Allow reports whether a client may ask now.
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

// Network names where a client without a token comes from: its address, or of IPv6 the network of 64 bits, as one
// machine has all addresses of that.
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
