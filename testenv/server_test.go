package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/embedsidecar/embedsidecar/testenv"
)

const (
	waitLimit = 5 * time.Minute
	childEnv  = "TESTENV_TEST_CHILD"
)

func queryMessage(sql string) *pgproto3.Query { return &pgproto3.Query{String: sql} }

// child is a child process of the test: it starts a server, prints its address, and waits to be killed.
func child(string) int {
	s, err := testenv.Start(context.Background(), testenv.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(s.PID(), filepath.Dir(s.Log()))
	select {}
}

// A server crash fails unrelated tests with lost connections; the server's log has the reason.
func TestServer_TellsWhyItBrokeDown(t *testing.T) {
	t.Parallel()
	s, err := testenv.Start(t.Context(), testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Broke(); err != nil {
		t.Error(err)
	}
	conn, err := pgx.Connect(t.Context(), s.URL("", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	pid := int(conn.PgConn().PID())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, waitLimit, func() (bool, string) {
		err := s.Broke()
		return err != nil && strings.Contains(err.Error(), fmt.Sprintf("(PID %d) was terminated by signal 9", pid)),
			fmt.Sprintf("told: %v", err)
	})
}

func TestServer_KeepsCommittedRowsThroughEveryWayToStop(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		s, err := testenv.Start(t.Context(), testenv.Options{Major: major, Config: map[string]string{
			"work_mem":     "7MB",
			"cluster_name": "it's mine",
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		db := testenv.DB(t, testenv.On(s))
		if got := testenv.Value[string](db,
			`SELECT current_setting('work_mem') || current_setting('wal_level') || current_setting('cluster_name')`); got != "7MBlogicalit's mine" {
			t.Errorf("settings are %s", got)
		}
		db.MustExec(`CREATE TABLE kept (n int)`)
		addr := s.Addr()
		for n, mode := range []testenv.Mode{testenv.Fast, testenv.Immediate, testenv.Killed} {
			db.MustExec(`INSERT INTO kept VALUES ($1)`, n)
			pid := s.PID()
			if err := s.Stop(mode); err != nil {
				t.Fatal(err)
			}
			// a killed server's last child may hold the port for a moment
			testenv.Eventually(t, waitLimit, func() (bool, string) {
				conn, err := net.Dial("tcp", addr)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil, fmt.Sprintf("mode %d: something still listens on %s", mode, addr)
			})
			if testenv.Running(pid) || s.PID() != 0 {
				t.Errorf("mode %d: process %d is still there, PID() = %d", mode, pid, s.PID())
			}
			if err := s.Stop(mode); err != nil {
				t.Errorf("mode %d: a second Stop: %v", mode, err)
			}
			if err := s.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.Addr() != addr {
				t.Errorf("mode %d: address %s, was %s", mode, s.Addr(), addr)
			}
			db.Pool.Reset()
			if got := testenv.Value[int](db, `SELECT count(*) FROM kept`); got != n+1 {
				t.Errorf("mode %d: %d rows, want %d", mode, got, n+1)
			}
		}
		if err := s.Resume(t.Context()); err == nil {
			t.Error("Resume of a running server says nothing")
		}
	})
}

func TestServer_AsksForAPassword(t *testing.T) {
	t.Parallel()
	s := testenv.Shared(t, 0)
	if os.Getenv("EMBEDSIDECAR_TEST_DSN") != "" {
		return // an external server has other rules
	}
	conn, err := pgx.Connect(t.Context(), "postgres://postgres:guess@"+s.Addr()+"/postgres?sslmode=disable")
	if err == nil {
		_ = conn.Close(t.Context())
		t.Error("a superuser needs no password")
	}
}

func TestServer_DiesWithItsProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	word, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(word)
	if err != nil {
		t.Fatalf("the child says %q", line)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	testenv.Eventually(t, waitLimit, func() (bool, string) {
		return !testenv.Running(pid), fmt.Sprintf("server %d is still there", pid)
	})
	// The next start removes what it left on the disk.
	s, err := testenv.Start(t.Context(), testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	testenv.Eventually(t, waitLimit, func() (bool, string) { // another process's start may do it concurrently
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist), fmt.Sprintf("%s is still there (%v)", dir, err)
	})
	if _, err := os.Stat(s.Log()); err != nil {
		t.Errorf("the folder of a living server is gone: %v", err)
	}
}

func TestStart_SaysWhatToRunForAMissingMajor(t *testing.T) {
	t.Setenv("PGBIN", "")
	t.Setenv("EMBEDSIDECAR_PG_DIR", t.TempDir())
	_, err := testenv.Start(t.Context(), testenv.Options{Major: 13})
	if err == nil || !strings.Contains(err.Error(), "run tools/postgres.sh 13, or set PGBIN") {
		t.Errorf("Start: %v", err)
	}
}

func TestStart_ShowsTheLogOfAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := testenv.Start(t.Context(),
		testenv.Options{Config: map[string]string{"shared_preload_libraries": "no_such_library"}})
	if err == nil || !strings.Contains(err.Error(), `could not access file "no_such_library"`) {
		t.Errorf("Start: %v", err)
	}
}

func TestEventually_WaitsAndThenShowsTheState(t *testing.T) {
	t.Parallel()
	calls := 0
	testenv.Eventually(t, waitLimit, func() (bool, string) { calls++; return calls == 4, "" })
	if calls != 4 {
		t.Errorf("condition was asked %d times, want 4", calls)
	}
	fake := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		testenv.Eventually(fake, 20*time.Millisecond, func() (bool, string) { return false, "still 3 of 5" })
	}()
	<-done
	if want := "not within 20ms; last state: still 3 of 5"; fake.said != want {
		t.Errorf("said %q, want %q", fake.said, want)
	}
}

// failing records a failure but does not fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit() // as t.FailNow does
}
