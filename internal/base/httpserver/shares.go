package httpserver

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

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
