package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// damage is a damaging action on a database, and the state that is then reported.
type damage struct {
	change string
	copied bool // the database is dumped, and restored beside itself
	older  bool // it was dumped before it changed, and is restored over itself while a sidecar runs
	state  health.Code
	words  []string // of the reason and the hint
	flags  []string // flags for the hint; the state is that of a pipeline with the old configuration
	way    []string // the command of the hint
	texts  bool     // some are new, so that they are embedded
}

// fromDocs returns the flags of the pipeline into an embedding table, and more.
func fromDocs(flags ...string) []string {
	return append([]string{"--columns", "title,body", "--into-table", "docs_emb"}, flags...)
}

var asBefore = fromDocs("--table", "docs")

const anew = `DROP TABLE docs; CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text); INSERT INTO docs SELECT i, 'title ' || i, 'again ' || i FROM generate_series(1, 5) AS i`

var damages = map[string]damage{
	"the table is dropped and made anew": {
		change: anew, state: health.Missing, texts: true,
		words: []string{
			"the source table was dropped, and public.docs is now another table",
			"embedsidecar init with the pipeline configured, or the next run, moves the pipeline to it",
		}, way: []string{"init"},
		flags: asBefore,
	},
	"the embedding table is dropped": {
		change: `DROP TABLE docs_emb`, state: health.Misconfigured, texts: true,
		words: []string{`the destination "public"."docs_emb" is gone`, "run embedsidecar init: it recreates it"},
		way:   []string{"init"}, flags: asBefore,
	},
	"a column is dropped": {
		change: `ALTER TABLE docs DROP COLUMN body`, state: health.Misconfigured, texts: true,
		words: []string{`no column "body" any more`, "run embedsidecar init after changing the pipeline"},
		way:   []string{"init"}, flags: []string{"--table", "docs", "--columns", "title", "--into-table", "docs_emb"},
	},
	"another table has the name": {
		change: `ALTER TABLE docs RENAME TO old; CREATE TABLE docs (LIKE old INCLUDING ALL); INSERT INTO docs VALUES (1, 'title 1', 'body 1'), (2, 'x', 'y')`, state: health.Replaced, texts: true,
		words: []string{
			"is now another table, whose rows get no vectors",
			"embedsidecar init with the pipeline configured, or the next run",
		}, way: []string{"init"}, flags: asBefore,
	},
	"both tables move to another schema, which is renamed": {
		change: `CREATE SCHEMA app; ALTER TABLE docs SET SCHEMA app; ALTER TABLE docs_emb SET SCHEMA app; ALTER SCHEMA app RENAME TO web`, state: health.NoSidecar,
		words: []string{"embedsidecar run"}, way: []string{"run", "--once"}, flags: fromDocs("--table", "web.docs"),
	},
	"another server": {
		change: `UPDATE embedsidecar.lsn_checkpoint SET system_id = '42'`, state: health.Copied,
		words: []string{
			"this server is not the one that was set up",
			"embedsidecar init --adopt with its pipelines configured: it creates a new slot",
		}, way: []string{"init", "--adopt"},
		flags: asBefore,
	},
	"an older dump restored over it": {
		older: true, state: health.Missing,
		change: `UPDATE docs SET body = 'newer ' || id WHERE id <= 5; DELETE FROM docs WHERE id IN (6, 7); INSERT INTO docs VALUES (21, 'new', 'new')`,
		words: []string{
			"the source table was dropped, and public.docs is now another table",
			"embedsidecar init with the pipeline configured, or the next run, moves the pipeline to it",
		}, way: []string{"init"},
		flags: asBefore,
	},
	"a dump restored beside the original": {
		copied: true, state: health.Copied,
		words: []string{
			"slot names are unique per server",
			"embedsidecar init --adopt --slot embedsidecar_",
		}, way: []string{"init", "--adopt", "--slot", "{own}"}, flags: asBefore,
	},
}

// waits holds the running sidecar before it could switch to a table that has the pipeline's table name now, perhaps
// before it was reported. The returned function releases it.
func (c *damage) waits(s *stage) (goOn func()) {
	s.t.Helper()
	if c.older || c.state != health.Missing && c.state != health.Replaced { // a restore recreates what is locked
		return func() {}
	}
	return s.open(asInit)
}

// happens does the damage while a sidecar runs.
func (c *damage) happens(s *stage, d *daemon) {
	s.t.Helper()
	if c.copied || c.state == health.NoSidecar || c.state == health.Copied {
		d.end(syscall.SIGTERM, 0) // its end is part of the story
	}
	if c.copied {
		s.moveToCopy()
	}
	var restore func()
	if c.older {
		restore = s.dumped()
	}
	for sql := range strings.SplitSeq(c.change, "; ") {
		if sql != "" {
			s.db.MustExec(sql)
		}
	}
	if c.older {
		s.run(0, "wait", "--caught-up") // their queue positions are later than those in the dump
		restore()
	}
}

// isTold checks that status, check and wait report the same.
func (c *damage) isTold(s *stage) {
	s.t.Helper()
	if c.older { // the sidecar applies its configuration, perhaps before the state is read
		testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
			now := s.state("public.docs")
			out, _ := s.command(append([]string{"check"}, asBefore...)...).CombinedOutput() // its findings are checked
			told := now.State == c.state && strings.Contains(string(out), c.words[0]) && strings.Contains(now.Health().String(),
				c.words[1])
			return told || now.State == health.UpToDate, now.Health().String() + "\n" + string(out)
		})
		return
	}
	s.becomes("public.docs", c.state, c.words...)
	now := s.state("public.docs")
	if c.state != health.NoSidecar {
		stdout, _ := s.run(exitFailed, append([]string{"check"}, asBefore...)...)
		s.has(stdout, c.words[0])
	}
	switch c.state {
	case health.Missing, health.Misconfigured: // waiting would not help
		_, stderr := s.run(exitFailed, "wait", "--caught-up")
		s.has(stderr, now.Reason)
	case health.Replaced: // the vectors of the pipeline's own table are right
		s.run(0, "wait", "--caught-up")
	default:
		s.inTime(exitTimeout, "--timeout", []string{"wait", "--caught-up"}, now.Reason)
	}
}

// isMended follows the hint, after which every vector is right.
func (c *damage) isMended(s *stage, d *daemon) {
	s.t.Helper()
	way := append([]string{}, c.way...)
	for i := range way {
		way[i] = strings.ReplaceAll(way[i], "{own}", "embedsidecar_"+s.db.Name)
		if way[i] == "--slot" {
			s.slot = "embedsidecar_" + s.db.Name
		}
	}
	s.set("EMBEDSIDECAR_SLOT=" + s.slot)
	s.run(0, append(way, c.flags...)...)
	if d.cmd.ProcessState == nil {
		s.run(0, "wait", "--caught-up")
		if c.way[0] == "init" && !slices.Equal(c.flags, asBefore) { // it works, with the old configuration
			s.becomes("public.docs", health.Otherwise, "deploy the newer configuration here")
			d.end(syscall.SIGTERM, 0)
			s.start(c.flags...)
		}
		s.becomes("public.docs", health.UpToDate)
	} else {
		_, stderr := s.run(0, append([]string{"run", "--once"}, c.flags...)...)
		if strings.Contains(stderr, "error") {
			s.t.Error(stderr)
		}
	}
	s.run(0, "verify", "--deep", "20")
	written := testenv.Value[int64](s.db,
		"SELECT count(*) FROM embedsidecar.history WHERE outcome = 'embedded' AND pipeline_id = 1")
	if !c.texts && written != 20 {
		s.t.Errorf("%d texts were embedded for 20", written)
	}
}

// TestP10_EveryDoorTellsOneStoryAndItsWayOutWorks: after each kind of damage, status, check, wait and the probe of a
// running sidecar report the same. After the hint is followed, every vector is right again.
func TestP10_EveryDoorTellsOneStoryAndItsWayOutWorks(t *testing.T) {
	t.Parallel()
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 20)
			s.run(0, append([]string{"init"}, asBefore...)...)
			d := s.start(asBefore...)
			s.becomes("public.docs", health.UpToDate)
			goOn := c.waits(s)
			c.happens(s, d)
			c.isTold(s)
			goOn()
			c.isMended(s, d)
		})
	}
}

// moveToCopy dumps the database and restores it beside itself. Later commands use the copy.
func (s *stage) moveToCopy() { s.moveTo(s.db.Server) }

// moveTo dumps the database and restores it on a server. Later commands use that one.
func (s *stage) moveTo(server *testenv.Server) {
	s.t.Helper()
	into := testenv.DB(s.t, testenv.Empty(), testenv.On(server))
	file := filepath.Join(s.t.TempDir(), "dump")
	s.must(s.dump(file))
	s.db = into
	s.must(s.restoring(file, "--exit-on-error"))
	s.as(testenv.Owner)
}

// dumped dumps the database. The returned function restores the dump over the database.
func (s *stage) dumped() (restore func()) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "dump")
	s.must(s.dump(file))
	return func() {
		s.t.Helper()
		// a running sidecar holds locks, too: the server may abort the restore in a deadlock
		testenv.Eventually(s.t, waitTimeout, func() (bool, string) {
			out, err := s.restoring(file, "--exit-on-error", "--clean", "--if-exists").CombinedOutput()
			return err == nil, string(out)
		})
	}
}

func (s *stage) dump(file string) *exec.Cmd {
	return s.client("pg_dump", "--no-acl", "--no-owner", "--format=custom", "--file="+file, s.db.URL(testenv.Superuser))
}

// restoring restores everything except the extension, which exists and does not belong to the owner.
func (s *stage) restoring(file string, flags ...string) *exec.Cmd {
	s.t.Helper()
	list := file + ".list"
	contents, err := s.client("pg_restore", "--list", file).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	kept := slices.DeleteFunc(strings.Split(string(contents), "\n"), func(line string) bool {
		return strings.Contains(line,
			"EXTENSION")
	})
	if err := os.WriteFile(list, []byte(strings.Join(kept, "\n")), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return s.client("pg_restore", append(flags, "--use-list="+list, "--no-acl", "--no-owner", "--role="+testenv.Owner,
		"--dbname="+s.db.URL(testenv.Superuser), file)...)
}

// client returns a client program of the server's version.
func (s *stage) client(name string, args ...string) *exec.Cmd {
	return exec.CommandContext(s.t.Context(), filepath.Join(s.db.Server.Bin(), name), args...)
}

func (s *stage) must(c *exec.Cmd) {
	s.t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", c.Args[0], err, out)
	}
}
