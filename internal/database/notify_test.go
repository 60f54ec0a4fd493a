package database_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// TestP9_NotificationsAreNotKept: any role that can log in can notify, and by default pgx keeps unread notifications.
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
		cancel() // pending notifications are returned even so
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
	// A notification that arrives while the connection waits ends the wait.
	if _, err := pool.Exec(t.Context(), "SELECT pg_notify('flood', 'one more')"); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := conn.Conn().PgConn().WaitForNotification(waiting); err != nil || heard != flood+1 {
		t.Errorf("%d heard, %v", heard, err)
	}
}

// TestLine_ListensBetweenPiecesOfWork: work and notifications share one session without delays, and after a lost
// connection the handler learns that it may have missed notifications.
func TestLine_ListensBetweenPiecesOfWork(t *testing.T) {
	t.Parallel()
	const pieces = 200
	pool := connect(t, newDB(t))
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	line := database.NewLine(pool, 0)
	told, ended := make(chan string, 2*pieces), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := func() {
		go func() { ended <- line.Listen(ctx, "work", func(payload string) { told <- payload }) }()
		if first := <-told; first != "" {
			t.Errorf("told %q before it is said that it listens", first)
		}
	}
	pid := func() (pid int) {
		conn, err := line.Conn(t.Context())
		if err == nil {
			err = conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid)
			line.Failed(t.Context(), err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	listen()
	first := pid()
	for i := range pieces {
		exec("SELECT pg_notify('work', $1)", fmt.Sprint(i))
		if now := pid(); now != first {
			t.Fatalf("piece %d is done by the session %d, want %d", i, now, first)
		}
	}
	for i := range pieces {
		if payload := <-told; payload != fmt.Sprint(i) {
			t.Fatalf("told %q, want %d", payload, i)
		}
	}
	exec("SELECT pg_terminate_backend($1)", first)
	if err := <-ended; err == nil {
		t.Error("that the line was lost is not told")
	}
	listen()
	last := pid()
	if last == first {
		t.Error("the session that was ended goes on")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	left := 1
	for until := time.Now().Add(time.Minute); left > 0 && time.Now().Before(until); { // unread notifications would pile up
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", last).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
	}
	if left > 0 {
		t.Error("its session is left")
	}
}
