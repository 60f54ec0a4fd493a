package gate

import (
	"testing"
	"time"
)

// TestSessions_AreBounded: a session beyond the limit ends the oldest.
func TestSessions_AreBounded(t *testing.T) {
	t.Parallel()
	l := &sessions{list: map[string]session{"over": {until: time.Now().Add(-time.Second)}}}
	first := l.open(Token{})
	for range maxSessions {
		l.open(Token{})
	}
	if _, ok := l.list[first]; ok || len(l.list) > maxSessions {
		t.Errorf("%d sessions, the first is there: %t", len(l.list), ok)
	}
}

// TestSessions_NobodyPushesOutOthers: a client that opens sessions without end only displaces its own.
func TestSessions_NobodyPushesOutOthers(t *testing.T) {
	t.Parallel()
	l := &sessions{list: map[string]session{}}
	first := l.open(Token{Name: "a", ID: "a"})
	for range 2 * maxSessions {
		l.open(Token{Name: "b", ID: "b"})
	}
	if _, ok := l.list[first]; !ok || len(l.list) > maxSessions {
		t.Errorf("%d sessions, that of another is there: %t", len(l.list), ok)
	}
}
