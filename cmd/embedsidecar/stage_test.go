package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/canary"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

// waitTimeout limits the waits of the tests.
const waitTimeout = 5 * time.Minute

// stage is a database on which the program works, as a separate process with the fake plugin.
type stage struct {
	t       *testing.T
	db      *testenv.Database
	slot    string
	environ []string
	secrets []string // what no output may contain
}

// newStage makes a database with a table docs of n rows, and without objects of ours.
func newStage(t *testing.T, n int, options ...testenv.Option) *stage {
	t.Helper()
	db := testenv.DB(t, append(options, testenv.Empty())...)
	db.MustExec("CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)")
	if n > 0 {
		db.MustExec("INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i FROM generate_series(1, $1::int) i", n)
	}
	dir, err := plugins()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, db: db, slot: db.SlotName()}
	s.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + filepath.Dir(dir), "EMBEDSIDECAR_PLUGIN=fake",
		"EMBEDSIDECAR_PLUGIN_DIR=" + dir,
		"EMBEDSIDECAR_PLUGIN_DIMS=8", "EMBEDSIDECAR_SLOT=" + s.slot, "EMBEDSIDECAR_PUBLICATION_NAME=" + db.Name + "_pub",
		"EMBEDSIDECAR_RETRY_INITIAL=20ms",
		"EMBEDSIDECAR_DATABASE_CONNECT_TIMEOUT=" + waitTimeout.String(), "EMBEDSIDECAR_HTTP_QUERIES_SEARCH_TIMEOUT=1m", // on a busy machine, too
		"GOCOVERDIR=" + coverDir(t.TempDir()),
	}
	s.as(testenv.Owner)
	return s
}

// as makes later calls use another role.
func (s *stage) as(role string) { s.at(s.db.URL(role) + "&connect_timeout=300") }

// at makes later calls use another URL.
func (s *stage) at(dsn string) {
	s.t.Helper()
	if u, err := url.Parse(dsn); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			s.secrets = append(s.secrets, password)
		}
	}
	s.set("EMBEDSIDECAR_DATABASE_URL=" + dsn)
}

// set sets a variable for later calls.
func (s *stage) set(variable string) {
	name, _, _ := strings.Cut(variable, "=")
	s.environ = slices.DeleteFunc(slices.Clone(s.environ), func(v string) bool { return strings.HasPrefix(v, name+"=") })
	s.environ = append(s.environ, variable)
}

// command returns a call of the program, which is killed at the end of the test.
func (s *stage) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(s.t.Context(), "embedsidecar", args...)
	c.Env = s.environ
	return c
}

// run runs a command with a wanted exit status, and returns its output.
func (s *stage) run(status int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "embedsidecar", args...)
	c.Env = s.environ
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("embedsidecar %s: status %d, want %d\n%s%s", strings.Join(args, " "), got, status, out.String(),
			errOut.String())
	}
	s.clean(out.String() + errOut.String())
	s.keepsContract(status, args, out.String(), errOut.String())
	return out.String(), errOut.String()
}

// inTime runs a command that must give up after a timeout. It raises the timeout until the command got far enough to
// print some words.
func (s *stage) inTime(status int, flag string, args []string, words ...string) {
	s.t.Helper()
	longer(300*time.Millisecond, func(limit time.Duration, last bool) bool {
		option := []string{flag, limit.String()}
		if !strings.HasPrefix(flag, "--") { // a setting without a flag
			option = []string{"--set", flag + "=" + limit.String()}
		}
		_, stderr := s.run(status, append(args, option...)...)
		missing := slices.IndexFunc(words, func(word string) bool { return !strings.Contains(stderr, word) })
		if missing >= 0 && last {
			s.t.Fatalf("%q is missing in:\n%s", words[missing], stderr)
		}
		return missing < 0
	})
}

// longer tries something with a time limit, and triples the limit until it gets far enough: a busy machine is slower.
func longer(limit time.Duration, try func(limit time.Duration, last bool) (done bool)) {
	for last := false; !try(limit, last) && !last; limit *= 3 {
		last = limit > waitTimeout/9
	}
}

// clean fails the test if a text contains a password.
func (s *stage) clean(text string) {
	s.t.Helper()
	if !canary.Search(s.t.Name(), []byte(text)) {
		s.t.Errorf("what no output may hold shows: %s", text)
	}
	for _, secret := range s.secrets {
		if strings.Contains(text, secret) {
			s.t.Errorf("a password shows: %s", text)
		}
	}
}

// has fails the test unless a text contains all words.
func (s *stage) has(text string, words ...string) {
	s.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			s.t.Errorf("%q is missing in:\n%s", word, text)
		}
	}
}

// asInit takes the lock of an init, so that another one waits.
const asInit = "LOCK TABLE embedsidecar.init_lock IN EXCLUSIVE MODE"

// open runs a statement in a transaction that stays open until the returned function is called.
func (s *stage) open(sql string) (commit func()) {
	s.t.Helper()
	tx, err := s.db.Pool.Begin(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := tx.Commit(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// once runs --once with the pipeline from docs into a column, and more flags.
func (s *stage) once(status int, args ...string) (stdout, stderr string) {
	s.t.Helper()
	return s.run(status, append([]string{
		"run", "--once", "--table", "docs", "--columns", "title,body", "--into",
		"embedding",
	}, args...)...)
}

// daemon is a running sidecar.
type daemon struct {
	s    *stage
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	log  logs.Buffer
}

func (d *daemon) text() string { return d.log.String() }

// start starts a sidecar, which is killed at the end of the test.
func (s *stage) start(args ...string) *daemon {
	s.t.Helper()
	return s.background(append([]string{"run", "--log-format", "json"}, args...)...)
}

// background starts a command, which is killed at the end of the test.
func (s *stage) background(args ...string) *daemon {
	s.t.Helper()
	return s.prepared(func(*exec.Cmd) {}, args...)
}

// prepared is background with a prepared command.
func (s *stage) prepared(prepare func(c *exec.Cmd), args ...string) *daemon {
	s.t.Helper()
	d := &daemon{s: s, cmd: s.command(args...), done: make(chan struct{})}
	prepare(d.cmd)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in ProcessState
		close(d.done)
	}()
	s.t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		select {
		case <-d.done:
		case <-time.After(waitTimeout):
		}
		s.clean(d.text())
		if s.t.Failed() {
			s.t.Log(d.text())
		}
	})
	return d
}

// logged waits for a message of the log and returns one of its attributes.
func (d *daemon) logged(message, attribute string) (value string) {
	d.s.t.Helper()
	testenv.Eventually(d.s.t, waitTimeout, func() (bool, string) {
		for line := range strings.SplitSeq(d.text(), "\n") {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
				value = fmt.Sprint(entry[attribute])
				return true, ""
			}
		}
		return false, message + " is not in the log:\n" + d.text()
	})
	return value
}

// end sends a signal and waits until the process ends with a status.
func (d *daemon) end(signal os.Signal, status int) {
	d.s.t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		d.s.t.Fatal(err)
	}
	d.ends(status)
}

// ends waits until the process ends with a status.
func (d *daemon) ends(status int) {
	d.s.t.Helper()
	select {
	case <-d.done:
	case <-time.After(waitTimeout):
		d.s.t.Fatalf("it does not end:\n%s", d.text())
	}
	if got := d.cmd.ProcessState.ExitCode(); got != status {
		d.s.t.Fatalf("status %d, want %d:\n%s", got, status, d.text())
	}
	d.s.clean(d.text())
}

// decoded reads JSON that a command printed.
func decoded[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}
