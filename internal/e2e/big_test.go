//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// bound is what a sidecar may take of memory however large a transaction is, in KiB.
const bound = 256 << 10

const bigEnv = "EMBEDSIDECAR_BIG_ROWS"

// TestP9_BigTransaction lets one transaction insert more rows than would fit into memory, with a kill in its middle.
func TestP9_BigTransaction(t *testing.T) {
	t.Parallel()
	rows := fromEnvironment(t, bigEnv, 100_000)
	majors := testenv.Majors(t)
	if os.Getenv(bigEnv) == "" {
		majors = majors[len(majors)-1:]
	}
	for _, major := range majors {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) { bigTransaction(t, major, rows) })
	}
}

func bigTransaction(t *testing.T, major, rows int) {
	t.Helper()
	// A server of its own: a long transaction holds up the making of slots on all of it.
	db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})), testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
		IntoTable: "docs_embedding",
	})
	// What the embedder does is another matter: it would only hide how fast tasks are made.
	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false`)
	noteMoves(db)

	// It is read at full speed without being cut off: not because the machine forgets the sidecar for the rig's 3 s,
	// that is.
	r.senderTimeout("1min")

	// Parts have up to 2,000 rows each.
	c := r.start([]string{fmt.Sprintf("%s=queue/after-enqueue-commit=kill@%d", failpoint.Env, rows/3/2000)}, "run",
		"--no-init")
	r.streaming(c)
	before := insertAtOnce(t, db, rows)

	begin := time.Now()
	waitTimeout := waitTimeout + time.Duration(rows)*time.Millisecond // a busy machine makes a thousand rows a second
	made := func() int { return r.count(`SELECT count(*) FROM embedsidecar.task`) }
	peak := 0
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		peak = max(peak, c.peak())
		return c.ended(), "it has not come to a third"
	})
	if s := c.wait(waitTimeout); s.Signal() != syscall.SIGKILL {
		t.Fatalf("the sidecar ended with %v:\n%s", c.cmd.ProcessState, c.tail())
	}
	if n := made(); n == 0 || n >= rows {
		t.Errorf("%d of %d tasks were there at the kill, which should be in the middle", n, rows)
	}
	c = r.runPlain()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		return testenv.Value[bool](db, `SELECT lsn > $1::text::pg_lsn FROM embedsidecar.lsn_checkpoint`, before),
			"the checkpoint has not moved"
	})
	took := time.Since(begin)
	if n := made(); n != rows {
		t.Errorf("%d tasks, want %d", n, rows)
	}
	// Nothing is past the transaction before all of it is queued.
	if n := r.count(`SELECT count(*) FROM public.moves WHERE lsn > $1::text::pg_lsn AND tasks < $2`, before, rows); n > 0 {
		t.Errorf("the checkpoint moved over a part of the transaction %d times", n)
	}
	db.MustExec(`DROP TRIGGER note_move ON embedsidecar.lsn_checkpoint`)
	peak = max(peak, c.peak())
	enqueued := peak

	db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true`)
	c.terminate()
	c = r.runPlain()
	begin = time.Now()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		open := testenv.Value[bool](db, `SELECT EXISTS (SELECT FROM embedsidecar.task)`)
		return !open, "tasks are left"
	})
	working := time.Since(begin)
	peak = max(peak, c.peak())
	if peak > bound {
		t.Errorf("the sidecar took up to %d MiB, want at most %d", peak>>10, bound>>10)
	}
	if n := c.times("msg=streaming"); n != 1 {
		t.Errorf("the sidecar took the slot %d times: it was disconnected", n)
	}
	if n := r.count(`SELECT count(*) FROM public.docs_embedding`); n != rows {
		t.Errorf("%d vectors, want %d", n, rows)
	}
	r.do(0, "verify", "--deep", "1000")
	c.terminate()
	r.nothingLeft()
	t.Logf("%d rows in one transaction: tasks made in %s with a kill after a third, worked in %s, memory at most %d MiB while reading, %d MiB while working; texts sent %d",
		rows, took.Round(time.Millisecond), working.Round(time.Millisecond), enqueued>>10, peak>>10, r.sent())
}

// noteMoves has the table moves tell how many tasks there were whenever the checkpoint moved, with those of the same
// transaction.
func noteMoves(db *testenv.Database) {
	db.MustExec(`CREATE TABLE public.moves (lsn pg_lsn, tasks bigint);
		CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.moves SELECT NEW.lsn, count(*) FROM embedsidecar.task;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER note_move AFTER UPDATE ON embedsidecar.lsn_checkpoint DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (OLD.lsn <> NEW.lsn) EXECUTE FUNCTION public.note_move()`)
}

// insertAtOnce inserts rows in one transaction, and returns the position before its commit.
func insertAtOnce(t *testing.T, db *testenv.Database, rows int) (before string) {
	t.Helper()
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(),
		`INSERT INTO public.docs SELECT i, 'the text of row ' || i FROM generate_series(1, $1::bigint) AS i`,
		rows); err != nil {
		t.Fatal(err)
	}
	before = testenv.Value[string](db, `SELECT pg_current_wal_insert_lsn()::text`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return before
}

// TestP9_AParentOfManyRows changes a row that is a part of many texts, while other rows change. No transaction of the
// sidecar is long, and its memory stays bounded.
func TestP9_AParentOfManyRows(t *testing.T) {
	t.Parallel()
	const bound = 128 << 10
	rows, longest, name := fromEnvironment(t, bigEnv, 50_000), time.Second, "" // which makes the backfill short
	if os.Getenv(bigEnv) == "" {
		longest, name = 5*time.Second, "ada" // other tests have the machine, too
	}
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.authors (id int PRIMARY KEY, name text);
		CREATE TABLE public.books (id bigint PRIMARY KEY, title text, author_id int);
		INSERT INTO public.authors VALUES (2, 'emmy')`)
	db.MustExec(`INSERT INTO public.authors VALUES (1, $1)`, name)
	db.MustExec(`INSERT INTO public.books SELECT i, 'title ' || i, 1 FROM generate_series(1, $1::bigint) AS i`, rows)
	db.MustExec(`CREATE INDEX ON public.books (author_id); ANALYZE public.books`) // as autovacuum does
	r := newRig(t, db, pipeline.Spec{
		Name: "books", Schema: "public", Table: "books", Text: "title || nullif(author, '')", IntoTable: "books_embedding",
		Joins: pipeline.Joins{{
			Schema: "public", Table: "authors", As: "author", On: []pipeline.On{{Column: "id", Of: "author_id"}}, Text: "name",
		}},
	})
	r.senderTimeout("1min")
	c := r.runPlain()
	r.streaming(c)
	settled := func(after int) {
		t.Helper()
		testenv.Eventually(t, waitTimeout+time.Duration(rows)*time.Millisecond, func() (bool, string) {
			c.mustLive()
			n := r.count(`SELECT (SELECT count(*) FROM embedsidecar.task) + (SELECT count(*) FROM embedsidecar.scan
				WHERE phase <> 'done' OR requested <= $1)`, after)
			return n == 0, fmt.Sprintf("%d tasks and scans open\n%s", n, c.tail())
		})
	}
	settled(0)
	scans, before := r.count(`SELECT requested FROM embedsidecar.scan`), r.sent()

	watching, stop := context.WithCancel(t.Context())
	var open, took int64
	var slowest string
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ; watching.Err() == nil; pause(watching, 50*time.Millisecond) {
			var n, ms int64
			var query string
			err := db.Super().QueryRow(watching, `SELECT (SELECT count(*) FROM embedsidecar.task), coalesce(max(a.ms), 0),
					coalesce((array_agg(a.query ORDER BY a.ms DESC))[1], '')
				FROM (SELECT (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint AS ms, left(query, 300) AS query
					FROM pg_stat_activity
					WHERE usename = $1 AND state <> 'idle' AND backend_type = 'client backend') AS a`, r.role).Scan(&n, &ms, &query)
			if err != nil && watching.Err() == nil {
				t.Error(err)
			}
			if open = max(open, n); ms > took {
				took, slowest = ms, query
			}
		}
	}()
	begin := time.Now()
	db.MustExec(`UPDATE public.authors SET name = 'grace' WHERE id = 1`)
	db.MustExec(`INSERT INTO public.books VALUES (0, 'another', 2)`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { // which does not wait for the others
		return r.count(`SELECT count(*) FROM public.books_embedding WHERE id = 0`) == 1, c.tail()
	})
	beside := time.Since(begin)
	settled(scans)
	all := time.Since(begin)
	stop()
	<-watched
	peak := c.peak()
	t.Logf("a parent of %d rows: done in %s, a row beside it in %s, at most %d tasks open, the longest transaction took %d ms, memory at most %d MiB: %s",
		rows, all.Round(time.Millisecond), beside.Round(time.Millisecond), open, took, peak>>10, slowest)
	// On a machine on which all of it takes for ever, a part of it takes its time, too.
	if longest = max(longest, all/8); took > longest.Milliseconds() {
		t.Errorf("the longest transaction took %d ms, want at most %s: %s", took, longest, slowest)
	}
	if peak > bound {
		t.Errorf("the sidecar took up to %d MiB, want at most %d", peak>>10, bound>>10)
	}
	if sent := r.sent() - before; sent < rows+1 || sent > rows+mostDirect {
		t.Errorf("%d texts were sent, want %d", sent, rows+1)
	}
	r.do(0, "verify", "--deep", "1000")
	c.terminate()
	r.nothingLeft()
}

// TestP8_HalfATransactionAgain kills a sidecar after it has queued and partly embedded the first half of a
// transaction. The next one is sent all of it again and embeds only what has no vector yet.
func TestP8_HalfATransactionAgain(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text, embedding vector(8))`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
		IntoColumn: "embedding",
	})
	r.countLost()
	// All that is embedded has a lease then, by which it is counted if it is lost.
	c := r.run(failpoint.Env+"=queue/after-enqueue-commit=kill@6", throughQueue)
	r.streaming(c)
	db.MustExec(`INSERT INTO public.docs SELECT i, 'the text of row ' || i FROM generate_series(1, $1::bigint) AS i`, rows)
	if s := c.wait(waitTimeout); s.Signal() != syscall.SIGKILL {
		t.Fatalf("the sidecar ended with %v:\n%s", c.cmd.ProcessState, c.tail())
	}
	r.neverAhead()
	before := r.sent()
	if queued := r.count(`SELECT last_value FROM embedsidecar.task_seq`); queued >= rows {
		t.Fatalf("%d tasks were made before the kill, want part of %d", queued, rows)
	}
	c = r.runPlain()
	r.streaming(c)
	r.caughtUp()
	lost := r.lost()
	if sent := r.sent(); sent < rows || sent > rows+lost {
		t.Errorf("%d texts were sent, want %d and at most %d again", sent, rows, lost)
	}
	t.Logf("%d texts sent before the kill, %d held by it, %d after it", before, lost, r.sent()-before)
	r.do(0, "verify", "--deep", "1000")
	c.terminate()
	r.nothingLeft()
}

// TestP9_BigRow sends a row of 100 MB. It gets its vector as its neighbours do, and memory stays bounded.
func TestP9_BigRow(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t, testenv.Empty())
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
		IntoTable: "docs_embedding",
	})
	r.leisurely()
	c := r.run()
	r.streaming(c)
	db.MustExec(`INSERT INTO public.docs SELECT i, 'the text of row ' || i FROM generate_series(1, 100) AS i`)
	db.MustExec(`INSERT INTO public.docs VALUES (101, repeat('0123456789 abcdefghi', 5 * 1024 * 1024))`)
	db.MustExec(`INSERT INTO public.docs SELECT i, 'the text of row ' || i FROM generate_series(102, 200) AS i`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		c.mustLive()
		n := r.count(`SELECT count(*) FROM public.docs_embedding`)
		open := r.count(`SELECT count(*) FROM embedsidecar.task`)
		return n == 200 && open == 0, fmt.Sprintf("%d vectors, %d tasks open\n%s", n, open, c.tail())
	})
	r.do(0, "verify", "--deep", "1000")
	if peak, most := c.peak(), bound+2*(100<<10); peak > most {
		t.Errorf("the sidecar took up to %d MiB, want at most %d: a constant, the message and the text", peak>>10, most>>10)
	} else {
		t.Logf("memory at most %d MiB", peak>>10)
	}
	c.terminate()
	r.nothingLeft()
}

// TestP9_LargeTexts backfills, reconciles and verifies rows of 1 MB each: together as many as may be in memory, where
// they are copied more than once. With 800 of them the figures are the same. The short form looks at one destination:
// what is read is read alike.
func TestP9_LargeTexts(t *testing.T) {
	t.Parallel()
	const (
		rows  = 160
		bound = rows << 10
	)
	specs := map[string]pipeline.Spec{
		"table": {Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoTable: "docs_embedding"},
	}
	if os.Getenv(bigEnv) != "" {
		specs["column"] = pipeline.Spec{
			Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"},
			IntoColumn: "embedding",
		}
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			db := testenv.DB(t, testenv.Empty())
			db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
			db.MustExec(`INSERT INTO public.docs SELECT i, i || repeat(' one two three', 75000) FROM generate_series(1, $1::int) AS i`, rows)
			r := newRig(t, db, spec)
			settled := func(c *child) {
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					c.mustLive()
					open := r.count(`SELECT (SELECT count(*) FROM embedsidecar.task) + (SELECT count(*) FROM embedsidecar.scan WHERE phase <> 'done')`)
					return open == 0, fmt.Sprintf("%d tasks and scans open\n%s", open, c.tail())
				})
			}
			for _, what := range []string{"the backfill", "the reconcile"} {
				c := r.runPlain()
				settled(c)
				if peak := c.peak(); peak > bound {
					t.Errorf("%s took up to %d MiB, want at most %d", what, peak>>10, bound>>10)
				} else {
					t.Logf("%s: at most %d MiB", what, peak>>10)
				}
				c.terminate()
				db.MustExec(`UPDATE embedsidecar.scan SET phase = 'waiting', requested = requested + 1`)
			}
			c := r.start(nil, "verify", "--deep", "50")
			peak := 0
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				peak = max(peak, c.peak())
				return c.gone(), "it is not done\n" + c.tail()
			})
			if s := c.wait(waitTimeout); s.ExitStatus() != 0 {
				t.Errorf("verify ended with %d:\n%s", s.ExitStatus(), c.tail())
			}
			if t.Logf("verify: at most %d MiB", peak>>10); peak > bound {
				t.Errorf("verify took up to %d MiB, want at most %d", peak>>10, bound>>10)
			}
			if n := r.sent(); n != rows+50 {
				t.Errorf("%d texts sent, want each once and the sample", n)
			}
			r.nothingLeft()
		})
	}
}
