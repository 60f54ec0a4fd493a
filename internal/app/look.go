package app

import (
	"context"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/setup/tenants"
)

const (
	// mostBehind is how many bytes of WAL the slot of a resting database may retain before the database is woken.
	mostBehind = 64 << 20
	// passingAtOnce is how many databases may be awake at a time only because their check is due.
	passingAtOnce = 4
)

// looks returns how long a database rests at most before it is checked.
func (t *tenant) looks() time.Duration { return t.in.cfg.Load().Tenants.Look }

// rest reports whether there are so many databases that quiet ones rest.
func (s *several) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > s.cfg.Load().Tenants.Awake
}

// look wakes the resting databases that have changes or whose check is due. It reports whether any rest.
func (s *several) look(ctx context.Context) bool {
	type group struct {
		tenants          []*tenant
		databases, slots []string
	}
	servers, on := map[string]*group{}, s.rest()
	s.mu.Lock()
	for _, t := range s.list {
		if t.resting.Load() == nil {
			continue
		}
		g := servers[t.Server]
		if g == nil {
			g = &group{}
			servers[t.Server] = g
		}
		g.tenants, g.databases = append(g.tenants, t), append(g.databases, t.Local)
		g.slots = append(g.slots, t.shown.Load().db.config().Slot.Name)
	}
	s.mu.Unlock()
	for server, g := range servers {
		asking, cancel := context.WithTimeout(ctx, lookTimeout)
		list, err := s.finder.Activity(asking, server, g.databases, g.slots)
		cancel()
		if err != nil && ctx.Err() == nil { // Find reports it
			s.n.o.Log.DebugContext(ctx, "could not check the resting databases", "error", err)
		}
		for _, t := range g.tenants {
			at := slices.IndexFunc(list, func(a tenants.Activity) bool { return a.Database == t.Local })
			if rest := t.resting.Load(); rest != nil && at >= 0 { // a database that is gone is skipped
				s.judge(t, rest, list[at], on)
			}
		}
	}
	return len(servers) > 0
}

// judge wakes a database that has changes or whose check is due. on: quiet databases rest.
func (s *several) judge(t *tenant, rest *resting, is tenants.Activity, on bool) {
	switch {
	case !on || is.Called || is.Behind == nil || is.Others == 0 && rest.base != nil && *rest.base != is.Changes:
		sleep.Wake(rest.wake)
	case time.Now().After(rest.until) || *is.Behind > mostBehind:
		if s.passing() < passingAtOnce { // otherwise it waits for its turn
			t.passing.Store(true)
			sleep.Wake(rest.wake)
		}
	case is.Others > 0:
		rest.base = nil // other sidecars process these changes
	case rest.base == nil && is.Ours == 0:
		rest.base = &is.Changes
		sleep.Wake(rest.left)
	}
}

// passing counts the databases that are awake because their check is due.
func (s *several) passing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.list {
		if t.passing.Load() {
			n++
		}
	}
	return n
}
