package testenv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// echo is a server that sends everything back.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, p *testenv.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func say(t *testing.T, conn net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(conn, word); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q (%v), want %q", got, err, want)
	}
}

func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("Read: %d bytes, %v; want a reset", n, err)
	}
}

func TestProxy_PassesEverythingOn(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, echo(t))
	conn := dial(t, p)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes (%v), want the %d sent", len(got), err, len(sent))
	}
	testenv.Eventually(t, waitLimit, func() (bool, string) {
		open, ever := p.Connections()
		return open == 0 && ever == 1, fmt.Sprintf("%d of %d connections open", open, ever)
	})
}

func TestProxy_CutsAtOnceAndAfterSoManyBytes(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, echo(t))
	conn := dial(t, p)
	say(t, conn, "hello")
	hear(t, conn, "hello")
	p.Cut()
	wantReset(t, conn)

	conn = dial(t, p)
	p.CutAfter(testenv.ToClient, 7)
	say(t, conn, "hello")
	hear(t, conn, "hello")
	say(t, conn, "again")
	got, err := io.ReadAll(conn)
	// The two bytes left may be lost with the reset, as in a real network.
	if !errors.Is(err, syscall.ECONNRESET) || !bytes.HasPrefix([]byte("ag"), got) {
		t.Errorf("heard %q (%v), want at most \"ag\" and a reset", got, err)
	}

	conn = dial(t, p)
	say(t, conn, "it acts once")
	hear(t, conn, "it acts once")
}

func TestProxy_StallsAndResumes(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, echo(t))
	conn := dial(t, p)
	p.Stall(testenv.ToClient)
	say(t, conn, "hello")
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 5)); err == nil {
		t.Fatalf("heard %d bytes of a stalled connection", n)
	}
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	p.Resume()
	hear(t, conn, "hello")
	p.Stall()
	say(t, conn, "never heard")
	p.Cut() // also ends what is stalled
	wantReset(t, conn)
	p.Resume()
	conn = dial(t, p)
	say(t, conn, "new")
	hear(t, conn, "new")
}

func TestProxy_DelaysAndDrips(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, echo(t))
	conn := dial(t, p)
	p.Delay(10*time.Millisecond, 2) // no timer is ever early
	start := time.Now()
	say(t, conn, "123456")
	hear(t, conn, "123456")
	if took := time.Since(start); took < 40*time.Millisecond { // three pieces to the server, one back
		t.Errorf("took %s, want at least 40ms", took)
	}
	p.Delay(0, 0)
	say(t, conn, "fast")
	hear(t, conn, "fast")
}

func TestProxy_RefusesAndAcceptsAgain(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, echo(t))
	old := dial(t, p)
	say(t, old, "a")
	hear(t, old, "a")
	p.Refuse()
	if conn, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			_ = conn.Close()
		}
		t.Errorf("Dial: %v, want connection refused", err)
	}
	say(t, old, "b")
	hear(t, old, "b")
	for range 2 { // the second changes nothing
		if err := p.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	conn := dial(t, p)
	say(t, conn, "c")
	hear(t, conn, "c")
}

func TestProxy_FollowsItsTarget(t *testing.T) {
	t.Parallel()
	p := testenv.StartProxy(t, testenv.Nowhere(t))
	if conn, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come this early
		defer func() { _ = conn.Close() }()
		wantReset(t, conn)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	p.SetTarget(echo(t))
	conn := dial(t, p)
	say(t, conn, "hello")
	hear(t, conn, "hello")
}

func TestProxy_CutsPostgresInTheMiddleOfAMessage(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	p := testenv.StartProxy(t, db.Server.Addr())
	conn, err := pgx.Connect(t.Context(), db.URLVia(p.Addr(), testenv.Owner))
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT length(repeat('x', 100000))`).Scan(&n); err != nil || n != 100000 {
		t.Fatalf("through the proxy: %d, %v", n, err)
	}
	p.CutAfter(testenv.ToClient, 5000)
	var text string
	if err := conn.QueryRow(t.Context(), `SELECT repeat('x', 100000)`).Scan(&text); err == nil || !conn.IsClosed() {
		t.Errorf("read %d bytes through a cut connection (%v, closed %t)", len(text), err, conn.IsClosed())
	}
}
