package sidecar_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/embedsidecar/embedsidecar/internal/report"
	"github.com/embedsidecar/embedsidecar/internal/sidecar"
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
