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
	places turn // one for each client
	own    httpserver.Shares
	ended  chan struct{} // closed when the listener ends
	end    func()        // ends all watches
}

func newHub() *hub {
	h := &hub{
		places: make(turn, maxWatchers), own: httpserver.Shares{Most: ownWatchers}, ended: make(chan struct{}),
	}
	h.end = sync.OnceFunc(func() { close(h.ended) })
	return h
}

func (h *hub) join(name string) error {
	if !h.own.Take(name) {
		return gate.Busy(fmt.Sprintf("this client already watches %d times, the most allowed", ownWatchers))
	}
	select {
	case h.places <- struct{}{}:
		return nil
	default:
		h.own.GiveBack(name)
		return gate.Refuse(http.StatusServiceUnavailable, "overloaded", "too many clients watch").After(10 * time.Second)
	}
}

func (h *hub) leave(name string) {
	h.own.GiveBack(name)
	h.places.giveBack()
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
