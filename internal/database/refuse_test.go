package database_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestConnect_Errors(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	good := db.URL(testenv.Superuser) + slowly
	plain := db.Role("")
	secrets := []string{"s3cr3t"}
	with := func(change func(u *url.URL)) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		if word, ok := u.User.Password(); ok {
			secrets = append(secrets, word)
		}
		return u.String()
	}
	deaf := refusing(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	ending := resetting(t)

	for _, tt := range []struct {
		name, dsn   string
		replication bool
		want        database.Kind
	}{
		{"nobody listens", with(func(u *url.URL) { u.Host = deaf }), false, database.Unreachable},
		{"no answer", with(func(u *url.URL) { u.Host = silent.Addr().String() }), false, database.Unreachable},
		{
			"reset while TLS is asked for", with(func(u *url.URL) { u.Host, u.RawQuery = ending, "connect_timeout=120" }), false,
			database.Unreachable,
		},
		{
			"reset while TLS is demanded", with(func(u *url.URL) { u.Host, u.RawQuery = ending, "sslmode=require"+slowly }),
			false, database.Unreachable,
		},
		{"no such host", with(func(u *url.URL) { u.Host = "no-such-host.invalid" }), false, database.Unreachable},
		{"no such database", with(func(u *url.URL) { u.Path = "/nope" }), false, database.NoDatabase},
		{"no such database, replication", with(func(u *url.URL) { u.Path = "/nope" }), true, database.NoDatabase},
		{
			"no such role", with(func(u *url.URL) { u.User = url.UserPassword("nobody_at_all", "s3cr3t-canary") }), false,
			database.Auth,
		},
		{"role may not replicate", db.URL(plain) + slowly, true, database.Permission},
		{"unreadable", "postgres://u:s3cr3t-canary/x@h:y/db", false, database.BadURL},
		{"unreadable pairs", "password=s3cr3t-canary port=s3cr3t-canary", false, database.BadURL},
		{
			"missing certificate", "host=localhost sslmode=verify-full sslrootcert=/nonexistent password=s3cr3t-canary", false,
			database.BadURL,
		},
		{"no TLS here", with(func(u *url.URL) { u.RawQuery = "sslmode=require" + slowly }), false, database.TLS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			var o database.Options
			if tt.name == "no answer" {
				o.ConnectTimeout = 500 * time.Millisecond
			}
			if tt.replication {
				_, err = database.ConnectReplication(t.Context(), tt.dsn, o)
			} else {
				_, err = database.Connect(t.Context(), tt.dsn, o)
			}
			var e *database.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want *database.Error", err)
			}
			if e.Kind != tt.want {
				t.Errorf("kind %s, want %s: %v", e.Kind, tt.want, err)
			}
			text := err.Error() + strings.Join(problem.Hints(err), "")
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("error tells a secret: %s", text)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("error has several lines: %s", text)
			}
			for _, part := range []string{"127.0.0.1:", "no-such-host.invalid", "SQLSTATE", "TLS", "dial"} {
				if n := strings.Count(strings.ReplaceAll(err.Error(), "no-such-host.invalid:", ""), part); n > 1 {
					t.Errorf("%q is told %d times: %s", part, n, err)
				}
			}
			t.Log(err, problem.Hints(err))
		})
	}
}

func TestIsTransient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"the server stops", &pgconn.PgError{Code: pgerrcode.AdminShutdown}, true},
		{"the server starts", &pgconn.PgError{Code: pgerrcode.CannotConnectNow}, true},
		{"too many connections", &pgconn.PgError{Code: pgerrcode.TooManyConnections}, true},
		{"a lock", &pgconn.PgError{Code: pgerrcode.LockNotAvailable}, true},
		{"a deadlock", &pgconn.PgError{Code: pgerrcode.DeadlockDetected}, true},
		{"no such table", &pgconn.PgError{Code: pgerrcode.UndefinedTable}, false},
		{"cut off", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		{"reset", fmt.Errorf("read: %w", syscall.ECONNRESET), true},
		{"no connection", &database.Error{Kind: database.Unreachable, Err: io.EOF}, true},
		{"no such database", &database.Error{Kind: database.NoDatabase, Err: io.EOF}, false},
		{"no such file", &fs.PathError{Op: "open", Path: "model.onnx", Err: syscall.ENOENT}, false},
		{"cancelled", context.Canceled, false},
		{"anything else", errors.New("else"), false},
	} {
		if got := database.IsTransient(tt.err); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

// refusing returns an address that refuses connections. It is reserved while the test runs.
func refusing(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	//nolint:forcetypeassert // as it was bound
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*syscall.SockaddrInet4).Port))
}

// resetting simulates a server that is killed: it accepts connections, and resets them at their first message.
func resetting(t *testing.T) string {
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
			_, _ = conn.Read(make([]byte, 8))
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestConnect_CancelledIsNotADatabaseError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := database.Connect(ctx, newDB(t), database.Options{})
	var e *database.Error
	if !errors.Is(err, context.Canceled) || errors.As(err, &e) {
		t.Errorf("got %v, want context.Canceled alone", err)
	}
}

func TestHint_KnowsSQLSTATEs(t *testing.T) {
	t.Parallel()
	pool := connect(t, newDB(t))
	if _, err := pool.Exec(t.Context(), "DROP EXTENSION IF EXISTS vector"); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(t.Context(), "SELECT '[1]'::public.vector")
	if got := strings.Join(problem.Hints(err), " "); !strings.Contains(got, "CREATE EXTENSION vector") {
		t.Errorf("hint for %v: %q", err, got)
	}
	for where, want := range map[string]bool{
		"PL/pgSQL function public.of_theirs() line 3 at RAISE":               true,
		"PL/pgSQL function embedsidecar.cancel(text,text[]) line 9 at RAISE": false,
		`SQL function "states" statement 1`:                                  false,
	} {
		if got := problem.Hints(&pgconn.PgError{Code: "22023", Where: where}); (got != nil) != want {
			t.Errorf("hint for what %s raised: %q", where, got)
		}
	}
	for err, want := range map[*pgconn.PgError]string{
		{Code: "53400", Message: `temporäre Datei überschreitet »temp_file_limit« (64kB)`}: "temp_file_limit",
		{Code: "53400"}: "max_replication_slots",
	} {
		if got := strings.Join(problem.Hints(err), " "); !strings.Contains(got, want) {
			t.Errorf("hint for %v: %q", err, got)
		}
	}
	if got := problem.Hints(errors.New("other")); got != nil {
		t.Errorf("got %q for an unknown error", got)
	}
	if got := problem.Hints(pgx.ErrNoRows); got != nil {
		t.Errorf("got %q for no rows", got)
	}
}
