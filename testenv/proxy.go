package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is the direction of bytes through a Proxy.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a TCP proxy that breaks connections on demand. It starts healthy; every fault applies to all connections
// until it is reverted. It is safe for concurrent use.
type Proxy struct {
	addr     string
	reserved *reservation
	wg       sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while refusing
	links    map[*link]struct{}
	stalled  [2]bool
	changed  chan struct{} // closed and replaced when stalled changes
	delay    time.Duration
	most     int      // limit of bytes passed on at a time
	left     [2]int64 // bytes until all connections are cut; negative: no limit
	accepted int64
	closed   bool
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	end            sync.Once
	ended          chan struct{}
	vanished       bool // guarded by Proxy.mu
}

const (
	wholeChunk  = 32 << 10
	dialTimeout = 5 * time.Minute
)

// StartProxy listens on a free port of 127.0.0.1 and forwards to target, host:port. It is closed at the test's end.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// NewProxy is StartProxy without a test; Close ends it.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{
		target: target, links: map[*link]struct{}{}, changed: make(chan struct{}), most: wholeChunk,
		left: [2]int64{-1, -1},
	}
	reserved, err := reserve(context.Background())
	if err != nil {
		return nil, fmt.Errorf("start the proxy: %w", err)
	}
	p.reserved, p.addr = reserved, reserved.Addr()
	l, err := listen(context.Background(), p.addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the proxy: %w", err), reserved.Close())
	}
	p.serve(l)
	return p, nil
}

// Addr returns where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Connections returns the number of open connections, and of all connections so far.
func (p *Proxy) Connections() (open int, ever int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links), p.accepted
}

// SetTarget sends new connections to another server, as after a failover. Open ones stay.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut resets all open connections (RST, not FIN). New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := p.links
	p.links = map[*link]struct{}{}
	p.mu.Unlock()
	for l := range links {
		l.reset()
	}
}

// CutAfter resets all connections once, after n more bytes in a direction, counted over all connections. This is
// usually in the middle of a message.
func (p *Proxy) CutAfter(d Direction, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[d] = n
}

// Stall stops forwarding in these directions (none named: both) and keeps connections open, like a network that drops
// all packets. New connections are accepted and also stall. Resume forwards the held bytes.
func (p *Proxy) Stall(directions ...Direction) { p.setStalled(true, directions) }

// Vanish stops forwarding on open connections for good but keeps them open, as if the server's host were gone. New ones
// work.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.vanished = true
	}
}

// Resume reverts Stall and Delay.
func (p *Proxy) Resume() {
	p.Delay(0, 0)
	p.setStalled(false, nil)
}

func (p *Proxy) setStalled(stalled bool, directions []Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(directions) == 0 {
		directions = []Direction{ToServer, ToClient}
	}
	for _, d := range directions {
		p.stalled[d] = stalled
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// Delay delays all data, forwarding at most most bytes at a time (0: no limit): Delay(500ms, 0) is a slow network,
// Delay(1ms, 1) sends single bytes.
func (p *Proxy) Delay(d time.Duration, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.most = d, most
	if most <= 0 || most > wholeChunk {
		p.most = wholeChunk
	}
}

// Refuse makes new connections fail with "connection refused". Open ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		_ = hangUp(l)
	}
}

// Accept reverts Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	refusing := p.listener == nil && !p.closed
	p.mu.Unlock()
	if !refusing {
		return nil
	}
	l, err := listen(context.Background(), p.addr)
	if err != nil {
		return fmt.Errorf("take connections again: %w", err)
	}
	p.serve(l)
	return nil
}

// Close resets all connections and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.Cut()
	p.wg.Wait()
	_ = p.reserved.Close()
}

func (p *Proxy) serve(l net.Listener) {
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue // the client left before it was accepted
			}
			p.wg.Go(func() { p.join(client.(*net.TCPConn)) })
		}
	})
}

// join connects a client to the server and forwards bytes until one of them ends.
func (p *Proxy) join(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	ctx, cancel := contextFor(dialTimeout)
	defer cancel()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn), ended: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	p.accepted++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, ToServer, l.client, l.server) })
	both.Go(func() { p.pump(l, ToClient, l.server, l.client) })
	both.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump forwards bytes in one direction. It also forwards the end of a stream, and resets the other side after a reset.
func (p *Proxy) pump(l *link, d Direction, from, to *net.TCPConn) {
	buffer := make([]byte, wholeChunk)
	for {
		n, err := from.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			if !p.hold(l, d) {
				return
			}
			pass, cut := p.count(d, min(len(rest), p.size()))
			if _, err := to.Write(rest[:pass]); err != nil {
				l.reset()
				return
			}
			if cut {
				p.Cut()
				return
			}
			rest = rest[pass:]
		}
		if err != nil {
			if !p.hold(l, d) {
				return
			}
			if errors.Is(err, io.EOF) {
				_ = to.CloseWrite()
			} else {
				l.reset()
			}
			return
		}
	}
}

func (p *Proxy) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// hold waits as Stall and Delay require. It returns false if the connection ended meanwhile.
func (p *Proxy) hold(l *link, d Direction) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-l.ended:
			return false
		}
	}
	for {
		p.mu.Lock()
		stalled, changed := p.stalled[d] || l.vanished, p.changed
		p.mu.Unlock()
		if !stalled {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// count returns how many of n bytes may pass, and whether all connections are cut after them.
func (p *Proxy) count(d Direction, n int) (pass int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.left[d]; left >= 0 {
		if int64(n) >= left {
			n, cut = int(left), true
			p.left[d] = -1
		} else {
			p.left[d] -= int64(n)
		}
	}
	return n, cut
}

// reset ends both sides with RST.
func (l *link) reset() {
	_ = l.client.SetLinger(0)
	_ = l.server.SetLinger(0)
	l.close()
}

func (l *link) close() {
	l.end.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}
