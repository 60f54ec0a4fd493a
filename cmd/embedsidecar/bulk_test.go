package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	caughtup "github.com/embedsidecar/embedsidecar/internal/manage/wait"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// loader is the program that bulk runs: it reports whether everything is paused, and does what its argument says.
func loader() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("EMBEDSIDECAR_DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	var on bool
	if err := conn.QueryRow(ctx, `SELECT bool_or(i.enabled AND p.enabled) FROM embedsidecar.pipeline AS p, embedsidecar.installation AS i
		WHERE p.name = 'docs'`).Scan(&on); err != nil {
		panic(err)
	}
	fmt.Println("at work:", on)
	switch what := os.Args[1]; what {
	case "copy": // rows come with vectors, and some existing rows get other ones
		sql, err := io.ReadAll(os.Stdin)
		if err != nil {
			panic(err)
		}
		if _, err := conn.Exec(ctx, string(sql)); err != nil {
			panic(err)
		}
	case "wait", "stubborn":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		fmt.Println("at it")
		<-signals
		if what == "stubborn" {
			fmt.Println("told once")
			<-signals
		}
		os.Exit(7)
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	default:
		status, err := strconv.Atoi(what)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, "so it ends")
		os.Exit(status)
	}
}

// loads runs bulk with an input and a wanted exit status, and checks the state afterwards: docs is resumed, and other,
// which was paused before, is not.
func (s *stage) loads(status int, input string, args ...string) (stdout, stderr string) {
	s.t.Helper()
	c := s.command(append([]string{"bulk"}, args...)...)
	var out, errOut bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(input), &out, &errOut
	_ = c.Run() // checked by its status
	if got := c.ProcessState.ExitCode(); got != status {
		s.t.Errorf("bulk %v: status %d, want %d\n%s%s", args, got, status, out.String(), errOut.String())
	}
	s.clean(out.String() + errOut.String())
	s.goesOn()
	return out.String(), errOut.String()
}

func (s *stage) goesOn() {
	s.t.Helper()
	got := testenv.Values[string](s.db, `SELECT p.name FROM embedsidecar.pipeline AS p, embedsidecar.installation AS i WHERE i.enabled AND p.enabled`)
	if fmt.Sprint(got) != "[docs]" {
		s.t.Errorf("%v are at work, want docs alone", got)
	}
}

// drains returns the result of wait for a pipeline.
func (s *stage) drains(status int, args ...string) caughtup.Drained {
	s.t.Helper()
	stdout, _ := s.run(status, append([]string{"wait", "-o", "json"}, args...)...)
	return decoded[map[string][]caughtup.Drained](s.t, stdout)["pipelines"][0]
}

// TestP1_ABulkLoad: the program finds everything embedded and paused, has the input, output and status of bulk, and
// pipelines are resumed however it ends. Loaded rows end up with vectors of their texts, whatever vectors they came
// with.
func TestP1_ABulkLoad(t *testing.T) {
	t.Parallel()
	s := newStage(t, 20)
	file := filepath.Join(t.TempDir(), "embedsidecar.yaml")
	if err := os.WriteFile(file, []byte(`version: 1
pipelines:
  - {name: docs, table: public.docs, columns: [title, body], into: {column: embedding}}
  - {name: other, table: public.docs, columns: [body], into: {table: other}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(0, "init", "--config", file)
	s.run(0, "pause", "other")
	const junk = `'[9,9,9,9,9,9,9,9]'`

	// No sidecar runs yet.
	s.inTime(exitTimeout, "--timeout", []string{"wait", "docs"}, "no sidecar runs", "embedsidecar run")
	stdout, stderr := s.loads(0, "", "docs", "--", "loader", "0")
	s.has(stdout, "at work: false")
	s.has(stderr, "no sidecar runs", "resumed", "so it ends")

	d := s.start("--no-init")
	if got := s.drains(0, "docs"); got.Result != "drained" || got.Rows != 0 || got.Seconds <= 0 {
		t.Errorf("drained: %+v", got)
	}
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM docs WHERE embedding IS NOT NULL"); n != 20 {
		t.Errorf("%d of 20 rows have a vector after a drain", n)
	}
	stdout, stderr = s.loads(0, `
		INSERT INTO docs (id, title, body, embedding) SELECT i, 'loaded', 'text ' || i, `+junk+` FROM generate_series(101, 110) AS i;
		UPDATE docs SET embedding = `+junk+` WHERE id < 4;
		UPDATE docs SET body = 'new', embedding = `+junk+` WHERE id BETWEEN 4 AND 6;
		DELETE FROM docs WHERE id = 7; INSERT INTO docs VALUES (7, 'title 7', 'body 7', `+junk+`)`, "--", "loader", "copy")
	s.has(stdout, "at work: false\n")
	s.has(stderr, "drained", "resumed")
	s.drains(0, "docs")
	s.run(0, "verify", "docs", "--deep", "30")
	if n := testenv.Value[int](s.db, "SELECT count(*) FROM docs WHERE embedding = "+junk+"::vector"); n != 0 {
		t.Errorf("%d rows kept vectors that were loaded", n)
	}

	s.endsAnyhow()
	s.pausedBefore()
	d.end(syscall.SIGTERM, 0)
}

// endsAnyhow: pipelines are resumed however the program ends.
func (s *stage) endsAnyhow() {
	t := s.t
	t.Helper()
	_, stderr := s.loads(3, "", "docs", "--", "loader", "3")
	s.has(stderr, "so it ends", "loader ended with status 3", "resumed")
	_, stderr = s.loads(137, "", "--", "loader", "die")
	s.has(stderr, "was ended by a signal: killed")
	s.loads(exitTimeout, "", "--timeout", "2s", "docs", "--", "loader", "wait")
	b := s.background("bulk", "--", "loader", "stubborn")
	says := func(what string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			select {
			case <-b.done:
				t.Fatalf("it ended before it said %q:\n%s", what, b.text())
			default:
			}
			return strings.Contains(b.text(), what), b.text()
		})
	}
	says("at it")
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	says("told once")
	b.end(syscall.SIGTERM, 7) // a second signal does not leave pipelines paused
	s.goesOn()
	audit := func() []string {
		return testenv.Values[string](s.db, "SELECT action || count(*) FROM embedsidecar.audit WHERE said_by LIKE '%by bulk' GROUP BY action ORDER BY 1")
	}
	before := audit()
	s.loads(exitUsage, "", "--", "there-is-no-such-program")
	s.loads(exitUsage, "", "dosc", "--", "loader", "0")
	s.loads(exitUsage, "", "loader", "0")
	s.loads(exitUsage, "", "--drain", "-1s", "--", "loader", "0")
	after := audit()
	if !slices.Equal(after, before) || len(after) != 3 || after[0][len("bulk"):] != after[2][len("resume"):] ||
		after[1][len("pause"):] != after[2][len("resume"):] {
		t.Errorf("the audit has %v, and %v before calls that do nothing", after, before)
	}
}

// pausedBefore: pipelines that were paused before stay paused, and drain says so, by command and by SQL.
func (s *stage) pausedBefore() {
	t := s.t
	t.Helper()
	s.run(0, "pause", "docs")
	if got := s.drains(0, "docs"); got.Result != "drained" || !strings.Contains(got.Note, "paused") {
		t.Errorf("paused, with nothing left: %+v", got)
	}
	s.db.MustExec("UPDATE docs SET body = 'changed' WHERE id < 4")
	if got := s.drains(exitFailed, "docs"); got.Result != "paused" || got.Rows != 3 {
		t.Errorf("paused, with rows left: %+v", got)
	}
	_, stderr := s.run(0, "bulk", "docs", "--", "loader", "0")
	s.has(stderr, "pipeline docs was already paused, and is not resumed", "docs is paused, with 3 rows left to embed")
	if testenv.Value[bool](s.db, "SELECT enabled FROM embedsidecar.pipeline WHERE name = 'docs'") {
		t.Error("bulk has resumed what it did not pause")
	}
	s.db.RunRole()
	reader, _ := s.db.SQLRoles()
	conn, err := pgx.Connect(t.Context(), s.db.URL(reader))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	call := func() (drained bool, left int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `CALL embedsidecar.drain('docs', '5 min')`).Scan(&drained, &left, nil); err != nil {
			t.Fatal(err)
		}
		return drained, left
	}
	if drained, left := call(); drained || left != 3 {
		t.Errorf("by SQL, paused: %t, %d left", drained, left)
	}
	s.run(0, "resume", "docs")
	if drained, left := call(); !drained || left != 0 {
		t.Errorf("by SQL: %t, %d left", drained, left)
	}
	s.run(0, "verify", "docs", "--deep", "30")
	if got := s.drains(exitFailed, "docs", "other"); got.Result != "drained" {
		t.Errorf("of all: %+v", got)
	}
}
