package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// gate makes a trigger of the user's wait in the middle of a write-back for as long as there is a row in a table.
const gate = `CREATE TABLE gate (closed boolean);
	CREATE FUNCTION wait_beside_it(integer) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM public.gate) LOOP
			PERFORM pg_catalog.pg_sleep(0.02);
		END LOOP;
		RETURN true;
	END $$;
	CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM public.wait_beside_it(0);
		RETURN NEW;
	END $$;
	GRANT SELECT ON gate TO PUBLIC`

// While a write-back of one pipeline stands still, changes of the same rows and of another pipeline are queued, and
// those of the other embedded.
func TestP5_TheStreamWaitsForNoWriteBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec    pipeline.Spec
		trigger string
	}{
		"embedding table": {
			intoTable("docs", "body"),
			`ALTER TABLE docs_embedding ADD CHECK (public.wait_beside_it(generation))`,
		},
		"column": {
			column("docs", "body"),
			`CREATE TRIGGER slow BEFORE UPDATE OF embedding ON docs FOR EACH ROW EXECUTE FUNCTION wait_at_gate()`,
		},
		"at the commit": {
			column("docs", "body"),
			`CREATE CONSTRAINT TRIGGER slow AFTER UPDATE OF embedding ON docs DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION wait_at_gate()`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			db.MustExec(gate)
			r := newRig(t, db, test.spec, intoTable("notes", "body"))
			said := &recorder{}
			r.options = func(o *sidecar.Options) { o.Loops, o.Log = 2, said.logger() }
			db.MustExec(test.trigger)
			s, _ := r.start()
			r.settle()
			db.MustExec(`INSERT INTO gate VALUES (true)`)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 20) AS i`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				var stands bool
				err := db.Super().QueryRow(t.Context(),
					`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`).Scan(
					&stands)
				return stands && err == nil, fmt.Sprintf("no write-back stands in the trigger: %v", err)
			})
			reconnects, gens := s.Stream().Reconnects.Load(), r.count(`SELECT sum(gen) FROM embedsidecar.task`)
			// Whatever it holds, it is no task.
			for _, sql := range []string{
				`UPDATE embedsidecar.task SET gen = gen WHERE task_id IN (SELECT task_id FROM embedsidecar.task ORDER BY row_key FOR UPDATE NOWAIT)`,
				`UPDATE embedsidecar.scan SET reason = reason WHERE pipeline_id IN (SELECT pipeline_id FROM embedsidecar.scan FOR UPDATE NOWAIT)`,
				`UPDATE embedsidecar.pipeline SET name = name WHERE pipeline_id IN (SELECT pipeline_id FROM embedsidecar.pipeline FOR UPDATE NOWAIT)`,
			} {
				testenv.Eventually(t, waitTimeout, func() (bool, string) { // others may hold a row for a moment
					_, err := db.Super().Exec(t.Context(), sql)
					return err == nil, fmt.Sprintf("%s: %v", sql, err)
				})
			}
			// a row that is being written into is locked: its writer waits, and so there is no change
			if !test.spec.InSource() {
				db.MustExec(`UPDATE docs SET body = body || '!'`)
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					now := r.count(`SELECT sum(gen) FROM embedsidecar.task`)
					return now >= gens+20, fmt.Sprintf("gens %d, then %d", gens, now)
				})
			}
			db.MustExec(`INSERT INTO notes VALUES (1, 'a lone change')`)
			r.has(1, `SELECT count(*) FROM notes_embedding`)
			if n := r.count(`SELECT count(*) FROM gate`); n != 1 {
				t.Fatal("the gate is open")
			}
			if n := s.Stream().Reconnects.Load() - reconnects; n != 0 || strings.Contains(said.text(), "enqueue") {
				t.Errorf("the stream was interrupted %d times: %s", n, said.text())
			}
			db.MustExec(`DELETE FROM gate`)
			r.settle()
			r.verify()
		})
	}
}

// Wherever in its write-back a worker stands still, nothing that the stream writes is locked.
func TestP5_AWorkerThatStandsStillHoldsNoTask(t *testing.T) {
	for _, place := range []string{
		"worker/after-read", "worker/after-embed", "worker/after-fence", "worker/before-commit",
		"worker/after-commit",
	} {
		for destination, spec := range map[string]pipeline.Spec{"column": column("docs", "body"), "table": intoTable("docs",
			"body")} {
			t.Run(place+"/"+destination, func(t *testing.T) {
				db := testenv.DB(t)
				db.MustExec(docs)
				r := newRig(t, db, spec)
				r.options = func(o *sidecar.Options) { o.Loops = 1 }
				r.start()
				r.settle()
				there, goOn := make(chan struct{}), make(chan struct{})
				var once sync.Once
				t.Cleanup(failpoint.Func(place, func() error {
					once.Do(func() { close(there) })
					<-goOn
					return nil
				}))
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 5) AS i`)
				<-there
				testenv.Eventually(t, waitTimeout, func() (bool, string) { // others may hold a row for a moment
					_, err := db.Super().Exec(t.Context(), `SELECT FROM embedsidecar.task ORDER BY row_key FOR UPDATE NOWAIT`)
					return err == nil, fmt.Sprintf("a task is locked: %v", err)
				})
				close(goOn)
				r.settle()
				r.verify()
			})
		}
	}
}

// An embedder that refuses every text is sent a few, not the table: the pipeline rests, says why, and goes on when a
// text is taken again.
func TestP8_AnEmbedderThatRefusesAllIsNotSentAll(t *testing.T) {
	t.Parallel()
	const rows, batch, loops = 6000, 64, 2
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = func(o *sidecar.Options) { o.Loops, o.BatchRows, o.Retry.MaxAttempts = loops, batch, 1000 }
	var (
		mu   sync.Mutex
		last = map[string]bool{}
		sent int
	)
	r.embedder.hook(func(_ context.Context, texts []string) error {
		mu.Lock()
		defer mu.Unlock()
		sent += len(texts)
		for _, text := range texts {
			last[text] = true
		}
		return &embed.Error{Class: embed.Data, Code: "refused", Err: errors.New("not this one")}
	})
	began := time.Now()
	r.start()
	state := func() health.State {
		t.Helper()
		st, err := report.Read(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		return st.Pipelines[0].Health()
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		s := state()
		return s.Code == health.Failing && strings.Contains(s.Reason, "all failed: refused"), s.String()
	})
	count := func() (rows, texts int) {
		mu.Lock()
		defer mu.Unlock()
		return len(last), sent
	}
	// The scan has filled the queue, and some rows were tried as probes.
	before, _ := count()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		now, _ := count()
		open := r.count(`SELECT count(*) FROM embedsidecar.task`)
		return now >= before+3 && open >= 4000, fmt.Sprintf("%d rows tried, then %d; %d open", before, now, open)
	})
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n > 5000 {
		t.Errorf("%d tasks are open: the bound of a backfill counts those that wait for another try", n)
	}
	tried, texts := count()
	probes := 100 + int(time.Since(began).Seconds()) // one a second, and more to begin with
	if most := 2*loops*batch + probes; tried > most || texts > 20*most {
		t.Errorf("%d of %d rows were tried, with %d texts", tried, rows, texts)
	}
	r.embedder.hook(nil)
	r.settle()
	r.verify()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		s := state()
		return s.Code == health.UpToDate, "it is still " + s.String()
	})
}
