//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/workload"
)

// slow makes each call to the embedder last, so that a signal finds work in hand.
const slow = "EMBEDSIDECAR_PLUGIN_FAULTS=cost=150ms/call"

// TestStandby_TakesOver kills the one of two sidecars that streams. The other one must have the slot then.
func TestStandby_TakesOver(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		r, shapes := newShapes(t, major, "integers", "filtered")
		r.senderTimeout("1min") // the rig's 3 s take the slot from a sidecar that a busy machine forgets for as long
		run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
			Seed:    uint64(major),
			Writers: 1, Pause: 10 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		streamer, other := r.run(), (*child)(nil)
		r.streaming(streamer)
		var slowest time.Duration
		for range 3 {
			other = r.run()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				other.mustLive()
				return other.said("pipeline started"), other.tail()
			})
			if other.said("msg=streaming") {
				t.Fatalf("both sidecars have the slot:\n%s", other.tail())
			}
			streamer.kill()
			begin := time.Now()
			r.streaming(other)
			slowest = max(slowest, time.Since(begin))
			streamer = other
		}
		if _, err := run.Stop(); err != nil {
			t.Fatal(err)
		}
		t.Logf("recovery %s at the slowest takeover; %s", slowest.Round(time.Millisecond), r.prove(streamer, shapes))
	})
}

// TestSigterm_GivesBackWhatItHolds ends sidecars in the middle of their work: with status 0, soon, and without a
// trace of a failure.
func TestSigterm_GivesBackWhatItHolds(t *testing.T) {
	t.Parallel()
	r, shapes := newShapes(t, 0, "integers", "composite", "texts")
	r.leisurely()
	run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 3, Writers: 2,
		Pause: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	var slowest time.Duration
	for range 4 {
		c := r.run(slow)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return r.count(`SELECT count(*) FROM embedsidecar.lease`) > 0, "nothing in work"
		})
		slowest = max(slowest, c.terminate())
		// A row that somebody had locked is due again in a moment: that is no failure.
		held := testenv.Values[string](r.db,
			`SELECT concat_ws(' ', row_key, state, attempt, losses, lost_leases, error_class, error_code, error_message)
				FROM embedsidecar.task
			WHERE state NOT IN ('todo', 'retrying') OR error_code <> 'locked' OR attempt > 0 OR losses > 0 OR lost_leases > 0`)
		if len(held) > 0 && !c.said("leases not given back") { // a server that does not answer cannot be given anything
			t.Errorf("after a SIGTERM %d tasks are not as they were: %q\n%s", len(held), held[:min(len(held), 5)], c.tail())
		}
		if n := r.count(`SELECT count(*) FROM embedsidecar.worker`); n > 0 && !c.said("left in the registry") {
			t.Errorf("%d workers are still registered", n)
		}
		r.nothingLeft()
	}
	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("slowest end %s; %s", slowest.Round(time.Millisecond), r.prove(r.run(), shapes))
}

// TestCrashLoop starts and kills sidecars as fast as they come, most of them before they do anything. Nothing piles up.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	crashes := fromEnvironment(t, "EMBEDSIDECAR_KILLS", usualKills)
	r, shapes := newShapes(t, 0, "integers", "citexts", "partitioned")
	run, err := workload.Start(t.Context(), r.db.URL(testenv.Owner), shapes, workload.Options{
		Seed: 5, Writers: 1,
		Pause: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, uint64(crashes)))
	for i := range crashes {
		c := r.run()
		pause(t.Context(), time.Duration(random.IntN(400))*time.Millisecond)
		if i%5 == 4 {
			c.signal(syscall.SIGTERM)
			// In its first milliseconds the program does not listen yet.
			if s := c.wait(waitTimeout); s.ExitStatus() != 0 && (s.Signal() != syscall.SIGTERM || c.tail() != "") {
				t.Errorf("SIGTERM: the sidecar ended with %v:\n%s", c.cmd.ProcessState, c.tail())
			}
		} else {
			c.kill()
		}
		if n := r.count(`SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`); n != 1 {
			t.Fatalf("%d slots after %d crashes", n, i+1)
		}
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		n := r.count(`SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, r.role)
		return n == 0, fmt.Sprintf("%d connections left by %d crashes", n, crashes)
	})
	if _, err := run.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crashes; %s", crashes, r.prove(r.run(), shapes))
}

// TestP4_AStoppedSidecarHoldsNobodysRows: a sidecar that stops with rows of users locked, as one in a virtual machine
// that is paused, has them for two seconds.
func TestP4_AStoppedSidecarHoldsNobodysRows(t *testing.T) {
	t.Parallel()
	for name, way := range map[string][]string{
		"queue":  {throughQueue, failpoint.Env + "=worker/after-fence=stop@1"},
		"direct": {failpoint.Env + "=worker/taken-for-quick=error;direct/before-commit=stop@1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
			r := newRig(t, db, pipeline.Spec{
				Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoColumn: "embedding",
			})
			c := r.run(way...)
			r.streaming(c)
			r.caughtUp()
			// Two seconds may be over before anybody has looked. The server counts the sessions that it ends.
			const ended = `SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()`
			before := r.count(ended)
			db.MustExec(`INSERT INTO public.docs VALUES (1, 'one')`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				c.mustLive()
				return c.stopped(), "it goes on: " + c.tail()
			})
			db.MustExec(`SET lock_timeout = '10s'; UPDATE public.docs SET body = 'two'`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return r.count(ended) > before, "no row was held: " + c.tail()
			})
			c.signal(syscall.SIGCONT)
			r.caughtUp()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return r.count(`SELECT count(*) FROM public.docs WHERE embedding IS NULL`) == 0, c.tail()
			})
		})
	}
}

// TestP1_AScanThatACrashMadeForget: a sidecar stands still with a page of a scan that it has read, and the server
// forgets a commit of that page meanwhile (synchronous_commit = off). The row is as it was before, without a task: the
// scan must not go on behind it.
func TestP1_AScanThatACrashMadeForget(t *testing.T) {
	t.Parallel()
	// Nobody but who commits, and waits for it, writes WAL to disk.
	server := testenv.Own(t, testenv.Options{Config: map[string]string{"wal_writer_delay": "10s"}})
	db := testenv.DB(t, testenv.On(server))
	db.MustExec(`CREATE TABLE public.docs (id bigint PRIMARY KEY, body text)`)
	r := newRig(t, db, pipeline.Spec{
		Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoTable: "docs_embedding",
	})
	stopped := func(c *child) {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			c.mustLive()
			return c.stopped(), "it goes on: " + c.tail()
		})
	}
	db.MustExec(`INSERT INTO public.docs VALUES (1, 'known')`)
	for try := 0; ; try++ {
		c := r.run()
		r.caughtUp()
		c.terminate()
		// A change that no slot tells of: a scan finds it, or nobody.
		db.MustExec(`SELECT pg_drop_replication_slot($1)`, r.slot)
		known := testenv.Value[string](db, `SELECT body FROM public.docs`)
		db.MustExec(`UPDATE public.docs SET body = $1`, fmt.Sprintf("changed %d", try))
		c = r.run(failpoint.Env + "=worker/before-scan-commit=stop@1+")
		stopped(c) // the scan is about to begin
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range []string{"SET LOCAL synchronous_commit = off", "LOCK public.docs"} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		c.signal(syscall.SIGCONT)
		testenv.Eventually(t, waitTimeout, func() (bool, string) { // for the page
			n := r.count(`SELECT count(*) FROM pg_locks WHERE relation = 'public.docs'::regclass AND NOT granted`)
			return n > 0, c.tail()
		})
		if _, err := tx.Exec(t.Context(), "UPDATE public.docs SET body = $1", known); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		stopped(c) // with a page on which nothing differs
		if err := server.Restart(t.Context(), testenv.Killed); err != nil {
			t.Fatal(err)
		}
		db.Pool.Reset()
		db.Super().Reset()
		forgotten := testenv.Value[string](db, `SELECT body FROM public.docs`) != known
		t.Log("the commit is forgotten:", forgotten)
		testenv.Eventually(t, waitTimeout, func() (bool, string) { // pools ask connections that were idle for so long
			return testenv.Value[bool](db, `SELECT now() > pg_postmaster_start_time() + interval '2 s'`), "it has just begun"
		})
		c.signal(syscall.SIGCONT)
		stopped(c) // with the next page, or the same once more
		c.kill()
		c = r.run()
		r.caughtUp()
		r.do(0, "verify", "--deep", "1000000")
		c.terminate()
		if forgotten {
			return
		}
	}
}
