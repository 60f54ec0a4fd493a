package replication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestWedge_GivesUpThePlaceThatTheServerCannotPass(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("receive: %w", &undecodedError{&pgconn.PgError{Code: "22P05", Message: "no equivalent"}})
	var w wedge
	var gap *gapError
	for i := 1; i < maxTries; i++ {
		if err := w.judge(refused, 7); errors.As(err, &gap) {
			t.Fatalf("gave up after %d tries", i)
		}
	}
	if err := w.judge(refused, 8); errors.As(err, &gap) {
		t.Fatal("gave up though it got on")
	}
	for i := 2; i < maxTries; i++ {
		if err := w.judge(refused, 8); errors.As(err, &gap) {
			t.Fatalf("gave up after %d tries", i)
		}
	}
	if err := w.judge(&pgconn.PgError{Code: "57P01"}, 8); errors.As(err, &gap) {
		t.Fatal("gave up because the server was stopped")
	}
	for i := 1; i < maxTries; i++ {
		_ = w.judge(refused, 8)
	}
	if err := w.judge(refused, 8); !errors.As(err, &gap) {
		t.Fatalf("got %v, want a gap", err)
	}
	for range 2 * maxTries {
		if err := w.judge(fmt.Errorf("enqueue: %w", &pgconn.PgError{Code: "XX002", Message: "an index of ours is broken"}),
			9); errors.As(err, &gap) {
			t.Fatal("gave the slot up because a statement of ours was refused")
		}
	}
}

// TestWedge_KnowsWhatStaysAsItIs: a file of the WAL that is gone does not come back, nor does a publication of the
// past.
func TestWedge_KnowsWhatStaysAsItIs(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"58P01": true, "42704": true, "55000": true, "22P05": true, "58030": false,
		"53100": false, "57P01": false,
	} {
		var w wedge
		var gap *gapError
		for range maxTries - 1 {
			_ = w.judge(&undecodedError{&pgconn.PgError{Code: code}}, 7)
		}
		if got := errors.As(w.judge(&undecodedError{&pgconn.PgError{Code: code}}, 7), &gap); got != want {
			t.Errorf("%s: a gap %t, want %t", code, got, want)
		}
		if errors.As(w.judge(&pgconn.PgError{Code: code}, 7), &gap) {
			t.Errorf("%s of a statement of ours: a gap", code)
		}
	}
}
