package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// locking begins a transaction with statements that lock something.
func (r *rig) locking(statements ...string) pgx.Tx {
	r.t.Helper()
	tx, err := r.db.Super().Begin(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(r.t.Context(), sql); err != nil {
			r.t.Fatal(err)
		}
	}
	return tx
}

func (r *rig) rollback(tx pgx.Tx) {
	r.t.Helper()
	if err := tx.Rollback(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// TestP5_ATableLockedForAWhile: while somebody alters a table its pipeline rests, the others work, and whoever waits
// waits on: it is not one that cannot work.
func TestP5_ATableLockedForAWhile(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(map[bool]string{false: "at the start", true: "later"}[running], func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(notes)
			// to say how it is made locks the table
			db.MustExec(`ALTER TABLE docs ADD loud text GENERATED ALWAYS AS (upper(body)) STORED`)
			r := newRig(t, db, column("docs", "loud"), intoTable("notes", "body"))
			var s *sidecar.Sidecar
			if running {
				s, _ = r.start()
				r.settle()
			}
			r.edit("locked ")
			lock := r.locking(`LOCK TABLE docs IN ACCESS EXCLUSIVE MODE`)
			if !running {
				s, _ = r.start()
			}
			// A change of the pipeline: what is as it was is not looked at again, and its rows wait for the lock one by one.
			db.MustExec(`UPDATE embedsidecar.pipeline SET lane = lane WHERE name = 'docs'`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				s.Reload()
				for _, state := range s.States() {
					if state.Pipeline.Name == "docs" {
						return strings.Contains(state.Reason(), "locked by another session"), state.Reason()
					}
				}
				return false, "no state"
			})
			db.MustExec(`INSERT INTO notes VALUES (1, 'meanwhile')`)
			r.has(1, `SELECT count(*) FROM notes_embedding`)
			lsn, err := report.Now(t.Context(), db.Pool)
			if err != nil {
				t.Fatal(err)
			}
			if state, err := report.At(t.Context(), db.Super(), r.slot, lsn); err != nil || state.Yes() ||
				len(state.Resting) != 0 {
				t.Errorf("while the table is locked: %+v, %v, want that there is something to wait for", state, err)
			}
			r.rollback(lock)
			r.settle()
			r.verify()
			// by init, and by the stream that did not know them
			if n := r.count(`SELECT max(requested) FROM embedsidecar.scan`); n > 2 {
				t.Errorf("%d scans were asked for: a lock is no reason for one", n)
			}
			if got := testenv.Value[string](db, `SELECT status FROM embedsidecar.pipeline WHERE name = 'docs'`); got != string(
				pipeline.Active) {
				t.Errorf("then it is %s", got)
			}
		})
	}
}

// TestP5_AScanThatSomebodyHolds: an operator has asked for a comparison in a transaction that he leaves open, and the
// table is altered meanwhile. Its rows wait for him; the stream and other pipelines do not, nor a sidecar that begins.
func TestP5_AScanThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(wide)
	db.MustExec(notes)
	db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, intoTable("docs", "title", "body"), intoTable("notes", "body"))
	s, stop := r.start()
	r.settle()
	lock := r.locking(`SELECT FROM embedsidecar.scan AS s
		WHERE s.pipeline_id = (SELECT p.pipeline_id FROM embedsidecar.pipeline AS p WHERE p.name = 'docs') FOR UPDATE`)
	db.MustExec(`ALTER TABLE docs RENAME body TO content`)
	db.MustExec(`UPDATE docs SET content = 'other ' || id WHERE id < 9`)
	for i := range 2 {
		db.MustExec(`INSERT INTO notes VALUES ($1, 'meanwhile')`, i)
		r.has(int64(i+1), `SELECT count(*) FROM notes_embedding`)
		db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = false WHERE name = 'notes'`)
		reason(t, s, "notes", "paused")
		db.MustExec(`UPDATE embedsidecar.pipeline SET enabled = true WHERE name = 'notes'`)
		r.works(s, "notes")
		stop()
		s, stop = r.start()
	}
	r.works(s, "notes")
	r.rollback(lock)
	r.noticed()
	r.settle()
	r.verify()
}

// TestP10_APipelineThatSomebodyHolds: what keeps the others from working is told all the same.
func TestP10_APipelineThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(notes)
	r := newRig(t, db, intoTable("docs", "body"), intoTable("notes", "body"))
	r.start()
	r.settle()
	lock := r.locking(`SELECT FROM embedsidecar.pipeline WHERE name = 'docs' FOR NO KEY UPDATE`) // as pause does
	db.MustExec(`ALTER TABLE docs DROP CONSTRAINT docs_pkey`)
	db.MustExec(`ALTER TABLE notes DROP CONSTRAINT notes_pkey`)
	r.status("notes", pipeline.Misconfigured)
	r.rollback(lock)
	r.status("docs", pipeline.Misconfigured)
	db.MustExec(`ALTER TABLE docs ADD PRIMARY KEY (id)`)
	db.MustExec(`ALTER TABLE notes ADD PRIMARY KEY (id)`)
	r.status("docs", pipeline.Active)
	r.status("notes", pipeline.Active)
	r.settle()
	r.verify()
}

// TestP8_WhatCannotBeWrittenIsNotPaidForAgain: while somebody holds the table with the vectors, or the rows that they
// go into, each try would embed what nobody keeps until it can be written.
func TestP8_WhatCannotBeWrittenIsNotPaidForAgain(t *testing.T) {
	t.Parallel()
	const rows, batch = 400, 100
	for name, c := range map[string]struct {
		spec pipeline.Spec
		lock string
	}{
		"table": {intoTable("docs", "body"), `LOCK TABLE docs_embedding IN SHARE MODE`}, // as CREATE INDEX does
		"rows":  {column("docs", "body"), `SELECT FROM docs FOR UPDATE`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(docs)
			r := newRig(t, db, c.spec)
			r.options = func(o *sidecar.Options) { o.CacheBytes, o.BatchRows = 1, batch }
			_, stop := r.start()
			r.settle()
			stop()
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
			lock := r.locking(c.lock)
			before := r.embedder.sent()
			r.start()
			for last := int64(0); last < 5*rows; { // each row has been tried several times
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					tried := r.count(`SELECT count(*) FROM embedsidecar.task WHERE error_code = 'locked' AND seq > $1`, last)
					return tried == rows, fmt.Sprintf("%d of %d rows found locked since %d", tried, rows, last)
				})
				last = r.count(`SELECT max(seq) FROM embedsidecar.task`)
			}
			if n := r.embedder.sent() - before; n > rows {
				t.Errorf("%d texts were embedded for %d rows that could not be written", n, rows)
			}
			r.rollback(lock)
			r.settle()
			r.verify()
		})
	}
}

func TestP5_TablesOfOursLockedAtTheStart(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, column("docs", "body"))
	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	lock := r.locking(`LOCK TABLE embedsidecar.installation IN ACCESS EXCLUSIVE MODE`)
	r.start()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(log.text(), "not started yet"),
			log.text()
	})
	r.rollback(lock)
	r.edit("after ")
	r.settle()
	r.verify()
}

// TestP10_AScanCountsWhenItIsAskedFor: whoever sees that a changed table was noticed may rely on its scan to be
// waited for.
func TestP10_AScanCountsWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	log := &recorder{}
	r.options = func(o *sidecar.Options) { o.Log = log.logger() }
	r.edit("before ")
	s, _ := r.start()
	r.settle()
	const key = "42"
	db.MustExecSuper(`CREATE FUNCTION public.hold_up() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(` + key + `); RETURN NULL; END'`)
	db.MustExecSuper(`CREATE CONSTRAINT TRIGGER hold_up AFTER UPDATE ON embedsidecar.scan DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.hold_up()`)
	lock := r.locking(`SELECT pg_advisory_xact_lock(` + key + `)`) // its commit waits for this, and gives up
	db.MustExec(`ALTER TABLE docs ALTER body TYPE text USING upper(body)`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return strings.Contains(log.text(), "table change not stored yet"), log.text()
	})
	if n := s.Stream().CatalogueScans.Load(); n != 0 {
		t.Errorf("%d scans are said to have been asked for, and none could be", n)
	}
	db.MustExecSuper(`DROP TRIGGER hold_up ON embedsidecar.scan`) // new connections would not stand it
	r.rollback(lock)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return s.Stream().CatalogueScans.Load() > 0,
			"the rewrite was not noticed"
	})
	r.settle()
	r.verify()
}
