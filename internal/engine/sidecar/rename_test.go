package sidecar_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_ARenamedColumnCostsNothing renames columns under a running sidecar, whose configuration names them as
// before, and a new column gets the old name of one. Nothing is embedded again, no row of the user's nor any vector
// is written, and the pipeline works on.
func TestP8_ARenamedColumnCostsNothing(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, into func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text, status text DEFAULT 'on')`)
		db.MustExec(`INSERT INTO docs SELECT i, 'title ' || i, 'body ' || i FROM generate_series(1, 100) AS i`)
		spec := into("docs", "title", "body")
		spec.Filter = `status = 'on'`
		r := newRig(t, db, spec)
		r.options = func(o *sidecar.Options) { o.CacheBytes = 1 }
		_, stop := r.start()
		r.settle()
		written := `SELECT string_agg(xmin::text, ',' ORDER BY id) FROM docs_embedding`
		if spec.InSource() {
			written = `SELECT string_agg(xmin::text, ',' ORDER BY id) FROM docs`
		}
		before, generation := testenv.Value[string](db, written),
			r.count(`SELECT generation::bigint FROM embedsidecar.pipeline`)
		unchanged := func(when string) {
			t.Helper()
			r.noticed()
			r.settle()
			if n := r.embedder.sent(); n != 100 {
				t.Errorf("%s: %d texts were sent for 100", when, n)
			}
			if testenv.Value[string](db, written) != before {
				t.Errorf("%s: rows were written", when)
			}
			if n := r.count(`SELECT generation::bigint FROM embedsidecar.pipeline`); n != generation {
				t.Errorf("%s: generation %d, want %d", when, n, generation)
			}
		}
		db.MustExec(`ALTER TABLE docs RENAME body TO content`)
		unchanged("renamed")
		r.status("docs", pipeline.Active)
		stop()
		done := r.init(spec) // as it was configured
		if !strings.Contains(fmt.Sprint(done.Warnings), `is now called "content"`) {
			t.Errorf("init warns of %v", done.Warnings)
		}
		_, stop = r.start()
		unchanged("set up with the old name")
		stop()
		spec.Columns = []string{"title", "content"}
		for range 2 {
			done = r.init(spec)
		}
		if len(done.Steps) != 0 {
			t.Errorf("the second init did %+v", done.Steps)
		}
		_, stop = r.start()
		unchanged("set up with the new name")
		stop()
		db.MustExec(`ALTER TABLE docs ADD body text`) // another one
		r.start()
		db.MustExec(`UPDATE docs SET content = 'changed' WHERE id = 7`)
		r.settle()
		if n := r.embedder.sent("title 7\n\nchanged"); n != 1 {
			t.Errorf("the changed text was sent %d times", n)
		}
		r.verify()
	})
}

// TestP1_ATableWhoseNameAnotherHasForAMoment: tables exchange their names, rows change or are compared, and the names
// are exchanged back before anybody has noticed: no row of the other table is taken for one of the pipeline's.
func TestP1_ATableWhoseNameAnotherHasForAMoment(t *testing.T) {
	t.Parallel()
	const exchange = `BEGIN; ALTER TABLE docs RENAME TO third; ALTER TABLE other RENAME TO docs;
		ALTER TABLE third RENAME TO other; COMMIT`
	for name, direct := range map[string]bool{"by the queue": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothDestinations(t, func(t *testing.T, into func(string, ...string) pipeline.Spec) {
				t.Helper()
				db := testenv.DB(t)
				db.MustExec(docs)
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 10) AS i`)
				spec := into("docs", "body")
				r := newRig(t, db, spec)
				db.MustExec(`CREATE TABLE other (LIKE docs INCLUDING ALL); GRANT SELECT ON other TO ` + r.role)
				if spec.InSource() {
					db.MustExec(`GRANT UPDATE ON other TO ` + r.role)
				}
				db.MustExec(`INSERT INTO other (id, body) VALUES (1, 'of another table')`)
				r.options = func(o *sidecar.Options) { o.Heartbeat, o.NoDirect = time.Hour, !direct }
				r.start()
				r.settle()
				db.MustExec(exchange)
				db.MustExec(`UPDATE other SET body = 'new ' || id WHERE id IN (1, 2)`)
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return r.embedder.sent("new 1") > 0 && r.embedder.sent("new 2") > 0, "they are not embedded"
				})
				r.settle()
				db.MustExec(exchange)
				r.settle()

				db.MustExec(`DELETE FROM other`)
				db.MustExec(exchange)
				db.MustExecSuper(`TRUNCATE embedsidecar.ledger`)
				if spec.InSource() {
					db.MustExec(`UPDATE other SET embedding = NULL`)
				} else {
					db.MustExec(`UPDATE docs_embedding SET text_hash = ''`)
				}
				if err := pgx.BeginFunc(t.Context(), db.Super(), func(tx pgx.Tx) error {
					return queue.RequestScan(t.Context(), tx, "they are compared", []int32{r.pipelines[0].ID})
				}); err != nil {
					t.Fatal(err)
				}
				r.settle()
				db.MustExec(exchange)
				r.settle()
				r.verify()
				if n := r.count(`SELECT count(*) FROM embedsidecar.history WHERE outcome = 'failed' OR attempt > 1`); n > 0 {
					t.Errorf("%d rows were tried in vain: none is at fault", n)
				}
				if n := r.embedder.sent("of another table"); n > 0 {
					t.Errorf("a row of another table was embedded %d times", n)
				}
			})
		})
	}
}

// TestP9_WhatARemovedPipelineLeftIsTakenAway: by the role that runs, which may no more than that.
func TestP9_WhatARemovedPipelineLeftIsTakenAway(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	db.MustExec(`INSERT INTO embedsidecar.ledger (pipeline_id, row_key, source_hash, vector_hash, generation, lsn)
		VALUES (1000, '1', '', '', 1, '0/0')`)
	if n, err := queue.DropLeftovers(t.Context(), connect(t, r.url, 1)); n != 1 || err != nil {
		t.Errorf("%d rows taken away: %v; want 1", n, err)
	}
}
