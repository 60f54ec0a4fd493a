package sidecar_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/sleep"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_AFunctionIsReplaced: nothing of it is in the WAL, and no row changes. It is called by name, by an operator,
// by another function that the server can see into, and in the filter; it is replaced, or dropped and made anew,
// while a sidecar runs and while none does.
func TestP1_AFunctionIsReplaced(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(docs)
		db.MustExec(`INSERT INTO docs SELECT i, 'Body ' || i FROM generate_series(1, 20) AS i`)
		for _, sql := range []string{
			`CREATE FUNCTION "Shape"(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT upper(t)'`,
			`CREATE FUNCTION inner_one(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT t'`,
			`CREATE FUNCTION outer_one(t text) RETURNS text IMMUTABLE LANGUAGE sql RETURN inner_one(t) || '.'`,
			`CREATE FUNCTION glue(a text, b text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT a || b'`,
			`CREATE OPERATOR |+| (LEFTARG = text, RIGHTARG = text, FUNCTION = glue)`,
			`CREATE FUNCTION wanted(n bigint) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT n < 15'`,
		} {
			db.MustExec(sql)
		}
		p := spec("docs")
		p.Text, p.Filter = `public."Shape"(body) OPERATOR(public.|+|) public.outer_one(body)`, `public.wanted(id)`
		r := newRig(t, db, p)
		r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour } // who waits has the tables looked at
		_, stop := r.start()
		r.settle()
		r.verify()
		for _, step := range []struct {
			sql     string
			sent    int
			stopped bool
		}{
			{
				sql:  `CREATE OR REPLACE FUNCTION "Shape"(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower(t)'`,
				sent: 14,
			},
			{sql: `CREATE OR REPLACE FUNCTION "Shape"(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower(lower(t))'`},
			{sql: `CREATE OR REPLACE FUNCTION glue(a text, b text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT a || ''-'' || b'`, sent: 14, stopped: true},
			{
				sql:  `CREATE OR REPLACE FUNCTION inner_one(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT t || t'`,
				sent: 14,
			},
			{
				sql:  `CREATE OR REPLACE FUNCTION wanted(n bigint) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT n < 18'`,
				sent: 3,
			},
			{
				sql:  `DROP FUNCTION "Shape"; CREATE FUNCTION "Shape"(t text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT t'`,
				sent: 17, stopped: true,
			},
		} {
			before := r.embedder.sent()
			if step.stopped {
				stop()
				r.released()
			}
			db.MustExecSuper(step.sql)
			if step.stopped {
				_, stop = r.start()
			}
			r.settle()
			if n := r.embedder.sent() - before; n != step.sent {
				t.Errorf("%d texts were sent, want %d: %s", n, step.sent, step.sql)
			}
			r.verify() // which sends all texts
		}
	})
}

// TestP2_ColumnsThatChangeNamesAndBack: what was written between is told by the names of then. The text of the row
// goes to the column that has the name of the other for a while, so that by the names nothing has changed.
func TestP2_ColumnsThatChangeNamesAndBack(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)`)
		db.MustExec(`INSERT INTO docs VALUES (1, 'here', 'there'), (2, 'one', 'two')`)
		r := newRig(t, db, spec("docs", "title"))
		r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
		r.start()
		r.counted()
		swap := func() {
			for _, sql := range []string{
				`ALTER TABLE docs RENAME title TO other`, `ALTER TABLE docs RENAME body TO title`,
				`ALTER TABLE docs RENAME other TO body`,
			} {
				db.MustExec(sql)
			}
		}
		swap()
		db.MustExec(`UPDATE docs SET title = body, body = title WHERE id = 1`)
		swap()
		r.settle()
		r.verify()
	})
}

// TestP2_ColumnsThatExchangeNamesBesideAnotherSidecar: who streams follows them, and compares the rows. Another sidecar
// that has not loaded them yet still names the columns as before: what it reads and writes does not count.
func TestP2_ColumnsThatExchangeNamesBesideAnotherSidecar(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, title text, body text)`)
		db.MustExec(`INSERT INTO docs VALUES (1, 'one', 'other'), (2, 'two', 'other')`)
		r := newRig(t, db, spec("docs", "title"))
		db.MustExec(`GRANT SELECT ON docs TO ` + r.role)                                   // not only its columns
		r.options = func(o *sidecar.Options) { o.NoStream, o.Heartbeat = true, time.Hour } // it hears of nothing
		works, _ := r.start()
		r.options = nil
		_, stop := r.start()
		r.settle()
		db.MustExec(`BEGIN; ALTER TABLE docs RENAME title TO third; ALTER TABLE docs RENAME body TO title;
			ALTER TABLE docs RENAME third TO body; COMMIT`)
		r.noticed()
		r.settle()
		stop()
		r.options = func(o *sidecar.Options) { o.NoWork = true }
		r.start()
		db.MustExec(`UPDATE docs SET body = 'anew', title = 'not its text' WHERE id = 1`)
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			return r.count(`SELECT count(*) FROM embedsidecar.task`) > 0 || r.embedder.sent("not its text") > 0, "no task"
		})
		sleep.For(t.Context(), time.Second) // it works by the old names, if at all
		works.Reload()
		r.settle()
		r.verify()
		db.MustExec(`UPDATE docs SET body = body || '!'`)
		r.settle()
		r.verify()
	})
}
