package sidecar_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP4_ASlowReadLetsOthersIn: a worker reads rows whose texts take long in several short transactions, so that
// whoever alters the table waits for one of them and not for the batch.
func TestP4_ASlowReadLetsOthersIn(t *testing.T) {
	t.Parallel()
	const rows = 64
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, body text)`)
	db.MustExec(`CREATE FUNCTION slowly(body text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.15); RETURN body; END'`)
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(1, $1) AS i`, rows)
	spec := intoTable("docs")
	spec.Columns, spec.Text = nil, `public.slowly(body)`
	r := newRig(t, db, spec)
	r.start()
	// How long the read that runs now has held its lock on the table.
	held := func() (seconds float64) {
		if err := db.Super().QueryRow(t.Context(), `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - a.xact_start)), 0)::float8
		FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
		WHERE l.relation = 'docs'::regclass AND l.granted AND a.usename = $1`, r.role).Scan(&seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return held() > 0.5, "no batch is read"
	})
	const bound = 0.9 * rows * 0.15 // the whole batch takes longer on any machine
	longest, altered := 0.0, make(chan struct{})
	go func() {
		defer close(altered)
		db.MustExec(`ALTER TABLE docs ADD more int`)
	}()
	for waits := true; waits; {
		select {
		case <-altered:
			waits = false
		case <-time.After(20 * time.Millisecond):
		}
		longest = max(longest, held())
	}
	if longest > bound {
		t.Errorf("a read kept whoever alters the table out for %.1f s", longest)
	}
	r.has(rows, `SELECT count(*) FROM docs_embedding`)
}
