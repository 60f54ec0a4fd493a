package database_test

import (
	"context"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// TestP9_NotificationsAreNotKept: any role that may log in can notify, and pgx remembers what nobody has asked it for
// yet.
func TestP9_NotificationsAreNotKept(t *testing.T) {
	t.Parallel()
	const flood = 200_000
	pool := connect(t, newDB(t))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (n int) {
		over, cancel := context.WithCancel(t.Context())
		cancel() // what is there already is given all the same
		for {
			if _, err := conn.Conn().WaitForNotification(over); err != nil {
				return n
			}
			n++
		}
	}
	exec("LISTEN flood")
	exec("SELECT count(pg_notify('flood', i::text)) FROM generate_series(1, $1::int) AS i", flood)
	if n := kept(); n != 0 {
		t.Errorf("%d notifications are kept that nobody heeds", n)
	}
	heard := 0
	database.Heed(conn.Conn().PgConn(), func(string) { heard++ })
	exec("SELECT count(pg_notify('flood', i::text)) FROM generate_series(1, $1::int) AS i", flood)
	if n := kept(); n != 0 || heard != flood {
		t.Errorf("%d notifications are kept, %d of %d heard", n, heard, flood)
	}
	// One that comes while the connection waits ends the waiting.
	if _, err := pool.Exec(t.Context(), "SELECT pg_notify('flood', 'one more')"); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := conn.Conn().PgConn().WaitForNotification(waiting); err != nil || heard != flood+1 {
		t.Errorf("%d heard, %v", heard, err)
	}
}
