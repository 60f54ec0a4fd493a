package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// TestStatus_WatchPaintsATerminal: on a terminal --watch replaces each frame by the next, within the terminal's height,
// on the alternate screen. q ends it and restores the terminal.
func TestStatus_WatchPaintsATerminal(t *testing.T) {
	t.Parallel()
	const height = 4 // fewer lines than a frame has
	s := newStage(t, 3)
	s.run(0, "init", "--pipeline", "docs: title, body -> embedding")
	keys, screen := terminal(t, height)
	before, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	seen, ended := s.sits(keys, screen, "status", "--watch", "--every", "50ms")
	const first = "\x1b[H" // to the first line
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Count(seen.String(), first) > 2, fmt.Sprintf("%q", seen.String())
	})
	pictures := strings.Split(seen.String(), first)
	for _, p := range pictures[1 : len(pictures)-1] {
		if lines := strings.Count(p, "\n") + 1; lines != height || !strings.HasPrefix(p, "embedsidecar ") {
			t.Errorf("a picture has %d lines, want %d: %q", lines, height, p)
		}
	}
	if _, err := keys.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after q: %v: %q", err, seen.String())
	}
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal was %+v, is %+v (%v)", before, after, err)
	}
	if all := seen.String(); strings.Count(all, "\x1b[?1049h") != 1 || strings.Count(all, "\x1b[?1049l") != 1 ||
		strings.Count(all, "\x1b[?25l") != strings.Count(all, "\x1b[?25h") {
		t.Errorf("it does not leave the screen and the cursor as they were: %q", all)
	}
}

// sits runs a command on a terminal. All its output has been seen when it has ended.
func (s *stage) sits(keys, screen *os.File, args ...string) (seen *logs.Buffer, ended <-chan error) {
	s.t.Helper()
	const last = "\x00" // a terminal keeps the order of writes
	seen = &logs.Buffer{}
	read, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(read)
		for part := make([]byte, 4096); ; { // bytes
			n, err := keys.Read(part)
			shown, ended := bytes.CutSuffix(part[:n], []byte(last))
			_, _ = seen.Write(shown)
			if ended || err != nil {
				return
			}
		}
	}()
	c := s.command(args...)
	c.Stdin, c.Stdout, c.Stderr = screen, screen, screen
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Process.Kill() })
	go func() {
		err := c.Wait()
		_, _ = screen.WriteString(last)
		<-read
		done <- err
	}()
	return seen, done
}

// terminal makes a terminal with so many lines: the user's side and the program's side.
func terminal(t *testing.T, height uint16) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: 200}); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// TestQuickstart_WaitsForThePackageOfPgvector: a superuser is not asked to run statements that must fail.
func TestQuickstart_WaitsForThePackageOfPgvector(t *testing.T) {
	t.Parallel()
	s := newStage(t, 3)
	const hides = 18 // from this major on a database can be made to see no extensions
	if s.db.Server.Major() < hides {
		return
	}
	s.db.MustExecSuper("DROP EXTENSION vector; ALTER DATABASE " + s.db.Name + " SET extension_control_path = '/nowhere'")
	s.as(testenv.Superuser)
	keys, screen := terminal(t, 50) // lines
	seen, ended := s.sits(keys, screen, "quickstart", "docs")
	shows := func(text string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return strings.Contains(seen.String(), text), seen.String()
		})
	}
	shows("waiting: ")
	if got := seen.String(); !strings.Contains(got, "package pgvector") || strings.Contains(got, "N] ") ||
		strings.Contains(got, "CREATE EXTENSION") {
		t.Errorf("something is asked before the package is there: %s", got)
	}
	s.db.MustExecSuper("ALTER DATABASE " + s.db.Name + " RESET extension_control_path")
	s.db.MustExecSuper(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	shows("Trust " + testenv.Owner + "? [y/N] ")
	if _, err := keys.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error(seen.String())
	}
	s.untouched()
}

// TestQuickstart_GoesOnOnceItIsMended: on a terminal what is not ready is printed once, as one psql call, and waited
// for. The plan follows after it and a server restart. A superuser is asked whether to run the statements.
func TestQuickstart_GoesOnOnceItIsMended(t *testing.T) {
	t.Parallel()
	server := testenv.Own(t, testenv.Options{Config: map[string]string{"wal_level": "replica"}})
	s := newStage(t, 3, testenv.On(server))
	s.db.MustExecSuper("DROP EXTENSION vector")
	begun := func() (seen *logs.Buffer, ended <-chan error, types func(keys, until string)) {
		keys, screen := terminal(t, 50) // lines
		seen, ended = s.sits(keys, screen, "quickstart", "docs")
		return seen, ended, func(typed, until string) {
			t.Helper()
			from := len(seen.String())
			if _, err := keys.WriteString(typed); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return strings.Contains(seen.String()[from:], until), seen.String()
			})
		}
	}
	restarted := func() {
		t.Helper()
		if err := server.Restart(t.Context(), testenv.Fast); err != nil {
			t.Fatal(err)
		}
		s.db.Pool.Reset()
	}
	seen, ended, types := begun()
	types("", "waiting: ")
	_, script, _ := strings.Cut(seen.String(), "<<'SQL';\r\n")
	script, _, _ = strings.Cut(script, "\r\nSQL\r\n")
	for line := range strings.Lines(script) { // as psql does it
		s.db.MustExecSuper(line)
	}
	types("", "waiting for wal_level: ") // only what is left
	restarted()
	types("", "s: SQL] ")
	if n := strings.Count(seen.String(), "Not ready yet"); n != 1 || strings.Contains(seen.String(), "the most text is in") ||
		strings.Contains(seen.String(), "  makes ") || // only the answer s shows that
		strings.Count(seen.String(), `"public"."docs": title`) != 1 {
		t.Errorf("%d times not ready, or something is told twice: %s", n, seen.String())
	}
	types("s\n", `CREATE TABLE "public"."docs_embedding"`)
	if shown := seen.String(); strings.Contains(shown, ".sql") || !strings.Contains(shown, "-- tables: ") {
		t.Errorf("files in the place of what the schema holds: %s", shown)
	}
	types("n\n", "nothing was done")
	if err := <-ended; err != nil {
		t.Error(err, seen.String())
	}

	s.db.MustExecSuper("ALTER SYSTEM SET wal_level = 'replica'")
	s.db.MustExecSuper("ALTER TABLE docs OWNER TO " + testenv.Superuser)
	restarted()
	s.as(testenv.Superuser)
	seen, ended, types = begun()
	types("", "Run this, and trust "+testenv.Owner+"? [y/N] ") // one question
	types("y\n", "Then restart the server: ")
	types("", "waiting: ")
	restarted()
	types("", "s: SQL] ")
	types("\x03", "interrupted: nothing was set up")
	if err := <-ended; err == nil {
		t.Error(seen.String())
	}
	s.untouched()

	// Also if nothing else is missing. A user who does not trust the owner is told what to do.
	for answer, want := range map[string]string{"y\n": "s: SQL] ", "n\n": "--trust-owner " + testenv.Owner} {
		_, ended, types = begun()
		types("", "Trust "+testenv.Owner+"? [y/N] ")
		types(answer, want)
		if answer == "y\n" {
			types("n\n", "nothing was done")
		}
		if err := <-ended; (err == nil) != (answer == "y\n") {
			t.Error(answer, err)
		}
	}
	s.untouched()

	// Enter asks the example question of an embedded row.
	_, ended, types = begun()
	types("", "Trust "+testenv.Owner+"? [y/N] ")
	types("y\n", "s: SQL] ")
	types("y\n", "Ask something (Enter: title ")
	types("\n", "DISTANCE")
	types("\x04", "From an application")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
