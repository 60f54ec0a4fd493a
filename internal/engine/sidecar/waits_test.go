package sidecar_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_AWaitKnowsOfAlteredTables: nothing of these changes comes through the slot, and the next heartbeat is an
// hour away.
func TestP10_AWaitKnowsOfAlteredTables(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"another type": {`ALTER TABLE docs ALTER body TYPE varchar USING body || '!'`},
		"a partition that is attached": {
			`CREATE TABLE docs_b (LIKE docs INCLUDING ALL)`,
			`INSERT INTO docs_b (id, body) SELECT i, 'body ' || i FROM generate_series(101, 119) AS i`,
			`ALTER TABLE docs ATTACH PARTITION docs_b FOR VALUES FROM (100) TO (200)`,
		},
		"a partition that is detached": {`ALTER TABLE docs DETACH PARTITION docs_a`, `DROP TABLE docs_a`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text) PARTITION BY RANGE (id)`)
			db.MustExec(`CREATE TABLE docs_a PARTITION OF docs FOR VALUES FROM (0) TO (100)`)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 31) AS i`)
			r := newRig(t, db, intoTable("docs", "body"))
			r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
			r.start()
			r.settle()
			for _, sql := range change {
				db.MustExec(sql)
			}
			r.settle()
			r.verify()
		})
	}
}

// TestP10_AWaitForAnyPositionEnds: nothing that is published lies between the last commit and the position, and the
// server stays quiet.
func TestP10_AWaitForAnyPositionEnds(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`CREATE TABLE elsewhere (i int)`)
	r := newRig(t, db, intoTable("docs", "body"))
	r.start()
	r.edit("text ")
	r.settle()
	position := func(sql string) pglogrepl.LSN {
		lsn, err := pglogrepl.ParseLSN(testenv.Value[string](db, sql))
		if err != nil {
			t.Fatal(err)
		}
		return lsn
	}
	db.MustExec(`INSERT INTO elsewhere SELECT generate_series(1, 10)`)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute) // an idle position is stored after ten
	defer cancel()
	if state, err := report.Wait(ctx, db.Pool, r.slot, position(`SELECT pg_current_wal_insert_lsn()::text`)); err != nil {
		t.Errorf("a position that is there: %+v, %v", state, err)
	}
	// One that the WAL has not come to: it is heard of before.
	ahead := position(`SELECT (pg_current_wal_insert_lsn() + 2000)::text`)
	done := make(chan error, 1)
	go func() {
		_, err := report.Wait(ctx, db.Pool, r.slot, ahead)
		done <- err
	}()
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		db.MustExec(`INSERT INTO elsewhere SELECT generate_series(1, 10)`)
		return position(`SELECT pg_current_wal_insert_lsn()::text`) > ahead, "the WAL does not grow"
	})
	if err := <-done; err != nil {
		t.Errorf("a position ahead: %v", err)
	}
}

// TestP10_ReadYourOwnWrite: after a commit a session of the least-privileged reader waits, and then every row has its
// vector; nobody else commits anything that would move the stream on, and what does come is of no interest to it.
func TestP10_ReadYourOwnWrite(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		db.MustExec(`CREATE TABLE elsewhere (i int)`)
		r := newRig(t, db, intoTable("docs", "body"))
		r.options = func(o *sidecar.Options) { o.Heartbeat = time.Hour }
		r.start()
		r.settle()
		reader, _ := db.SQLRoles()
		conn, err := pgx.Connect(t.Context(), db.URL(reader))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		// Before 17 a message is not heard of until somebody commits: a procedure commits itself.
		call := `SELECT embedsidecar.wait_for(timeout => '5 min')`
		if major < 17 {
			call = `CALL embedsidecar.wait_until(timeout => '5 min')`
		}
		var took []time.Duration
		for i := 1001; i <= 1020; i++ {
			db.MustExec(`INSERT INTO docs (id, body) VALUES ($1, 'written ' || $1::bigint)`, i)
			db.MustExec(`INSERT INTO elsewhere VALUES ($1)`, i)
			began := time.Now()
			var yes bool
			if err := conn.QueryRow(t.Context(), call).Scan(&yes); err != nil || !yes {
				t.Fatalf("row %d: %t, %v", i, yes, err)
			}
			took = append(took, time.Since(began))
			if n := testenv.Value[int](db, `SELECT count(*) FROM docs_embedding WHERE id = $1`, i); n != 1 {
				t.Fatalf("row %d has %d vectors", i, n)
			}
		}
		slices.Sort(took)
		t.Logf("PostgreSQL %d: p50 %s, longest %s", major, took[len(took)/2], took[len(took)-1])
		if !testenv.Value[bool](db, `SELECT embedsidecar.caught_up('0/1')`) {
			t.Error("not caught up with the beginning")
		}
		// What cannot come in time, and what never will.
		for _, c := range []string{
			`SELECT embedsidecar.wait_for(pg_current_wal_lsn() + 100000000, '50 ms')`,
			`CALL embedsidecar.wait_until(pg_current_wal_lsn() + 100000000, '50 ms')`,
		} {
			var yes bool
			if err := conn.QueryRow(t.Context(), c).Scan(&yes); err != nil || yes {
				t.Errorf("%s: %t, %v", c, yes, err)
			}
		}
	})
}

// TestP10_ReadYourOwnWriteThatIsNotFlushed: with synchronous_commit = off a commit is in the WAL's memory alone when
// who made it asks. A yes is true all the same, and comes soon on a server where nobody else commits.
func TestP10_ReadYourOwnWriteThatIsNotFlushed(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		db.MustExec(`CREATE TABLE elsewhere (i int)`)
		r := newRig(t, db, intoTable("docs", "body"))
		r.start()
		r.settle()
		conn, err := pgx.Connect(t.Context(), db.URL(testenv.Owner))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		do := func(sql string, args ...any) {
			t.Helper()
			if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
				t.Fatal(err)
			}
		}
		do(`SET synchronous_commit = off`)
		// One that is not over holds WAL that no commit of its own will flush.
		open, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = open.Rollback(t.Context()) }()
		var took []time.Duration
		wrong := 0
		for i := 1001; i <= 1200; i++ {
			if _, err := open.Exec(t.Context(), `INSERT INTO elsewhere VALUES ($1)`, i); err != nil {
				t.Fatal(err)
			}
			do(`INSERT INTO docs (id, body) VALUES ($1, 'written ' || $1::bigint)`, i)
			began := time.Now()
			var yes bool
			if err := conn.QueryRow(t.Context(), `SELECT embedsidecar.wait_for(timeout => '5 min')`).Scan(&yes); err != nil || !yes {
				t.Fatalf("row %d: %t, %v", i, yes, err)
			}
			took = append(took, time.Since(began))
			if testenv.Value[int](db, `SELECT count(*) FROM docs_embedding WHERE id = $1`, i) != 1 {
				wrong++
			}
		}
		slices.Sort(took)
		t.Logf("PostgreSQL %d: p50 %s, longest %s", major, took[len(took)/2], took[len(took)-1])
		if wrong > 0 {
			t.Errorf("%d of %d yeses were false", wrong, len(took))
		}
	})
}
