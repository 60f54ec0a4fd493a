package quickstart

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestFollowing_KeepsItsLine: while nobody knows how far it is, the line says how far it was.
func TestFollowing_KeepsItsLine(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@"+testenv.Nowhere(t)+"/nothing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const before = "embedded 3 of 9 rows"
	f := &following{q: &quickstart{pool: pool}, pipeline: 1, drawn: before}
	if got := f.progress(t.Context()); got != before {
		t.Errorf("%q, want %q as before", got, before)
	}
}
