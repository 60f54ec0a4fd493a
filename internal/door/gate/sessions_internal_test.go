package gate

import (
	"testing"
	"time"
)

// TestSessions_AreBounded: one more than there may be ends the oldest.
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

// TestSessions_NobodyPushesOutOthers: who opens sessions without end takes the places of his own.
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
