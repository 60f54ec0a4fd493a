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
	for i := 1; i < patience; i++ {
		if err := w.judge(refused, 7); errors.As(err, &gap) {
			t.Fatalf("gave up after %d tries", i)
		}
	}
	if err := w.judge(refused, 8); errors.As(err, &gap) {
		t.Fatal("gave up though it got on")
	}
	for i := 2; i < patience; i++ {
		if err := w.judge(refused, 8); errors.As(err, &gap) {
			t.Fatalf("gave up after %d tries", i)
		}
	}
	if err := w.judge(&pgconn.PgError{Code: "57P01"}, 8); errors.As(err, &gap) {
		t.Fatal("gave up because the server was stopped")
	}
	for i := 1; i < patience; i++ {
		_ = w.judge(refused, 8)
	}
	if err := w.judge(refused, 8); !errors.As(err, &gap) {
		t.Fatalf("got %v, want a gap", err)
	}
	for range 2 * patience {
		if err := w.judge(fmt.Errorf("enqueue: %w", &pgconn.PgError{Code: "XX002", Message: "an index of ours is broken"}), 9); errors.As(err, &gap) {
			t.Fatal("gave the slot up because a statement of ours was refused")
		}
	}
}
