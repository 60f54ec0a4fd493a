package admin

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// TestDoor_SessionsAreBounded: one more than there may be ends the oldest.
func TestDoor_SessionsAreBounded(t *testing.T) {
	t.Parallel()
	d := &door{sessions: map[string]session{"over": {until: time.Now().Add(-time.Second)}}}
	first := d.open(Caller{}).Value
	for range maxSessions {
		d.open(Caller{})
	}
	if _, ok := d.sessions[first]; ok || len(d.sessions) > maxSessions {
		t.Errorf("%d sessions, the first is there: %t", len(d.sessions), ok)
	}
}

// TestBounds_NobodyPushesOutOthers: who opens sessions or watches without end takes the places of his own.
func TestBounds_NobodyPushesOutOthers(t *testing.T) {
	t.Parallel()
	d := &door{sessions: map[string]session{}}
	of := func(id string) serve.Token { return serve.Token{Name: id, ID: id} }
	first := d.open(Caller{token: of("a")}).Value
	for range 2 * maxSessions {
		d.open(Caller{token: of("b")})
	}
	if _, ok := d.sessions[first]; !ok || len(d.sessions) > maxSessions {
		t.Errorf("%d sessions, that of another is there: %t", len(d.sessions), ok)
	}

	watched := newHub()
	for range ownWatchers {
		if err := watched.join("a"); err != nil {
			t.Fatal(err)
		}
	}
	if watched.join("a") == nil {
		t.Error("one watches as often as he likes")
	}
	if err := watched.join("b"); err != nil {
		t.Errorf("another may not watch: %v", err)
	}
	watched.leave("a")
	if err := watched.join("a"); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}
