package sidecar_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// recovered logs how long it took to be right again after a fault, for the page of faults.
func (r *rig) recovered(since time.Time) {
	r.t.Helper()
	r.settle()
	r.t.Logf("recovery %s", time.Since(since).Round(time.Millisecond))
}

// TestP1_MergeAndCopy changes rows by MERGE and loads them by COPY, also into a table that is emptied just before,
// where the rows are frozen.
func TestP1_MergeAndCopy(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, oneOf(major)("docs", "body"))
		r.edit("before ")
		r.start()
		r.settle()
		if major >= 15 {
			sent := r.embedder.sent()
			db.MustExec(`MERGE INTO docs USING (SELECT i, 'merged ' || i AS body FROM generate_series(1, 60) AS i) AS s ON docs.id = s.i
				WHEN MATCHED AND id % 3 = 0 THEN DELETE
				WHEN MATCHED AND id % 3 = 1 THEN UPDATE SET body = s.body
				WHEN MATCHED THEN DO NOTHING
				WHEN NOT MATCHED THEN INSERT VALUES (s.i, s.body)`)
			r.settle()
			want := r.count(`SELECT count(*) FROM docs WHERE body LIKE 'merged %'`)
			if n := r.embedder.sent() - sent; want == 0 || int64(n) != want {
				t.Errorf("%d texts were sent after MERGE, want %d", n, want)
			}
			r.verify()
		}
		for _, c := range []struct{ first, options, word string }{
			{`DELETE FROM docs WHERE id > 40`, "", "copied"}, {`TRUNCATE docs`, "(FREEZE)", "frozen"},
		} {
			sent := r.embedder.sent()
			r.copyIn(c.first, c.options, c.word)
			r.settle()
			if n := r.embedder.sent() - sent; n != 3000 {
				t.Errorf("%s: %d texts were sent, want 3,000", c.word, n)
			}
			r.verify()
		}
	})
}

// copyIn loads 3,000 rows in a transaction that begins with a statement.
func (r *rig) copyIn(first, options, word string) {
	r.t.Helper()
	var rows strings.Builder
	for id := range 3000 {
		fmt.Fprintf(&rows, "%d\t%s %d\n", 1000+id, word, id)
	}
	tx := r.locking(first)
	_, err := tx.Conn().PgConn().CopyFrom(r.t.Context(), strings.NewReader(rows.String()), `COPY docs (id, body) FROM STDIN `+options)
	if err != nil {
		r.rollback(tx)
		r.t.Fatal(err)
	}
	if err := tx.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// TestP1_RowsOfASubscription: rows that come from another database by logical replication are changes like any others,
// although they have an origin.
func TestP1_RowsOfASubscription(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		server := testenv.Own(t, testenv.Options{Major: major})
		db := testenv.DB(t, testenv.On(server))
		source := testenv.DB(t, testenv.On(server), testenv.Empty())
		for _, d := range []*testenv.Database{source, db} {
			d.MustExec(docs)
		}
		source.MustExec(`INSERT INTO docs SELECT i, 'there ' || i FROM generate_series(1, 100) AS i`)
		source.MustExec(`CREATE PUBLICATION docs FOR TABLE docs`)
		r := newRig(t, db, oneOf(major)("docs", "body"))
		r.start()
		r.settle()
		// The slot is made beforehand: on one server the subscription would wait for itself.
		slot := source.Slot()
		db.MustExecSuper(fmt.Sprintf(`CREATE SUBSCRIPTION docs CONNECTION '%s' PUBLICATION docs WITH (create_slot = false, slot_name = '%s')`,
			source.URL(testenv.Superuser), slot))
		same := func(what string) {
			t.Helper()
			sum := `SELECT md5(coalesce(string_agg(id || ' ' || body, ',' ORDER BY id), '')) FROM docs`
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				return testenv.Value[string](db, sum) == testenv.Value[string](source, sum), what + " does not come"
			})
			r.settle()
			r.verify()
			if n, rows := r.count(vectors(oneOf(major)("docs"))), r.count(`SELECT count(*) FROM docs`); n != rows {
				t.Errorf("%s: %d vectors of %d rows", what, n, rows)
			}
		}
		same("what was there")
		source.MustExec(`INSERT INTO docs SELECT i, 'new ' || i FROM generate_series(101, 150) AS i;
			UPDATE docs SET body = body || '!' WHERE id % 2 = 0; UPDATE docs SET id = id + 1000 WHERE id < 10;
			DELETE FROM docs WHERE id % 7 = 0`)
		same("a transaction")
		source.MustExec(`TRUNCATE docs`)
		source.MustExec(`INSERT INTO docs VALUES (1, 'after all')`)
		same("a truncation")
		db.MustExecSuper(`ALTER SUBSCRIPTION docs DISABLE`)
		db.MustExecSuper(`ALTER SUBSCRIPTION docs SET (slot_name = NONE)`)
		db.MustExecSuper(`DROP SUBSCRIPTION docs`)
	})
}
