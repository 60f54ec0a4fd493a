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

// eventsEvery is the interval of the checks for changes.
const eventsEvery = 2 * time.Second

// maxWatchers limits the watching clients.
const maxWatchers = 32

// ownWatchers limits those of one token.
const ownWatchers = 8

// hub tracks the watching clients.
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
		return gate.Refuse(http.StatusServiceUnavailable, "overloaded", "too many clients watch").After(10 * time.Second)
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

// end ends all watches.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.over = true
		close(h.ended)
	}
}

// Watch calls tell with the state at once and after each change, checked every two seconds; if the tables cannot be
// read, it passes the error. It returns when ctx or the listener ends, or when tell fails. All watches share one read
// of the tables.
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
			return gate.Unknown("the session has ended, or the token was revoked")
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

// fingerprint identifies a status, ignoring its time.
func fingerprint(now Status, err error) string {
	if err != nil {
		return err.Error()
	}
	now.At = time.Time{}
	body, _ := json.Marshal(now) //nolint:errchkjson // it has been sent before
	return string(body)
}
