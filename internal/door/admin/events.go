package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// eventsEvery is how often somebody who watches is told, if anything is new.
const eventsEvery = 2 * time.Second

// maxWatchers bounds how many watch at a time.
const maxWatchers = 32

// ownWatchers bounds those of one token.
const ownWatchers = 8

// hub knows who watches.
type hub struct {
	ended chan struct{} // closed when the listener ends
	own   httpserver.Shares

	mu       sync.Mutex
	watchers int
	over     bool
}

func newHub() *hub {
	return &hub{ended: make(chan struct{}), own: httpserver.Shares{Most: ownWatchers}}
}

func (h *hub) join(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.own.Take(name) {
		return gate.Busy(fmt.Sprintf("this client already watches %d times, the most allowed", ownWatchers))
	}
	if h.watchers >= maxWatchers {
		h.own.GiveBack(name)
		return gate.Refuse(http.StatusServiceUnavailable, "overloaded", "too many watch already").After(10 * time.Second)
	}
	h.watchers++
	return nil
}

func (h *hub) leave(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own.GiveBack(name)
	h.watchers--
}

// end sends all watchers home.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over = true
		close(h.ended)
	}
}

// Watch tells how things stand, at once and then whenever that is something else, looking every two seconds; where the
// tables cannot be asked it tells the error instead. It returns when ctx or the listener ends, or when tell fails.
// However many watch, the tables are asked once.
func (s *Service) Watch(ctx context.Context, tell func(Status, error) error) error {
	who, err := gate.Asked(ctx, gate.RoleViewer)
	if err != nil {
		return err
	}
	if err := s.events.join(who.Name); err != nil {
		return err
	}
	defer s.events.leave(who.Name)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.events.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	told := ""
	for {
		now, err := s.Status(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !who.Still() {
			return gate.Unknown("the session is over, or the token was revoked")
		}
		if is := fingerprint(now, err); is != told {
			if err := tell(now.page(func(string) bool { return true }, 0), err); err != nil {
				return err
			}
			told = is
		}
		if !sleep.For(ctx, eventsEvery) {
			return nil
		}
	}
}

// fingerprint is what tells one status from another: all but the time.
func fingerprint(now Status, err error) string {
	if err != nil {
		return err.Error()
	}
	now.At = time.Time{}
	body, _ := json.Marshal(now) //nolint:errchkjson // it has been sent before
	return string(body)
}
