package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP5_VerifyNamesTheRowThatCannotBeRead has rows whose text fails and rows whose filter does, one of which had a
// vector before. All the others are judged, and the next scan asks for a look at no other row.
func TestP5_VerifyNamesTheRowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	chunks := pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
	for name, chunking := range map[string]pipeline.Chunking{"whole texts": {}, "chunks": chunks} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testenv.DB(t)
			db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, payload text, part int DEFAULT 1)`)
			db.MustExec(`INSERT INTO docs SELECT i, '{"t": "text ' || i || '"}' FROM generate_series(1, 700) AS i`)
			spec := intoTable("docs")
			spec.Columns, spec.Text, spec.Filter, spec.Chunking = nil, `(payload::jsonb) ->> 't'`, `1 / part > 0`, chunking
			r := newRig(t, db, spec)
			r.options = func(o *sidecar.Options) { o.Retry.MaxAttempts = 1 }
			r.start()
			r.settle()
			db.MustExec(`UPDATE docs SET payload = 'no json' WHERE id = 77`)
			db.MustExec(`UPDATE docs SET part = 0 WHERE id = 555`)
			r.settle()
			db.MustExec(`DELETE FROM docs_embedding WHERE id = 13`) // nobody is told of that: the next scan finds it
			check := func(missing int64, examples ...string) {
				t.Helper()
				found := r.reports()[0]
				want := worker.Report{
					Rows: 700, Wanted: 698, Covered: 698 - missing, Missing: missing, Refused: 2,
					Sampled: 698 - missing, Examples: examples,
				}
				if fmt.Sprint(found) != fmt.Sprint(want) || found.OK() {
					t.Errorf("verify found %+v, want %+v", found, want)
				}
			}
			const division, json = "555: its text or filter fails: SQLSTATE 22012",
				"77: its text or filter fails: SQLSTATE 22P02"
			check(1, division, json, "13: no vector")
			sent := r.embedder.sent()
			db.MustExecSuper(`UPDATE embedsidecar.scan SET phase = 'waiting', requested = requested + 1`)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				phase := testenv.Value[string](db, `SELECT phase FROM embedsidecar.scan`)
				return phase == "done", phase
			})
			if made := r.count(`SELECT tasks_made FROM embedsidecar.scan`); made != 3 {
				t.Errorf("the scan made %d tasks, want those of the row without a vector and of the two that fail", made)
			}
			r.settle()
			if n := r.embedder.sent() - sent; n > 1 {
				t.Errorf("%d texts were sent for the one row without a vector", n)
			}
			check(0, division, json)
		})
	}
}

// TestP4_TablesAreReadByPages: nobody who alters a table waits for a statement that reads all of it. There are
// vectors without rows on several pages, for keys that have several chunks and keys of several columns.
func TestP4_TablesAreReadByPages(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (a text, b int, body text, PRIMARY KEY (a, b))`)
	db.MustExec(`INSERT INTO docs SELECT 'k' || i % 7, i, 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen ' || i FROM generate_series(1, 3000) AS i`)
	spec := intoTable("docs", "body")
	spec.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
	r := newRig(t, db, spec)
	_, stop := r.start()
	r.settle()
	if n := r.count(`SELECT count(*) FROM docs_embedding`); n != 6000 {
		t.Fatalf("%d chunks, want two for each row", n)
	}
	stop()
	db.MustExec(`DELETE FROM docs WHERE b % 2 = 0`)
	db.MustExec(`DELETE FROM embedsidecar.ledger`) // as after a source table that was dropped and made anew
	found := r.reports()[0]
	if found.Rows != 1500 || found.Orphans != 1500 {
		t.Errorf("%d rows and %d orphans, want 1500 of each", found.Rows, found.Orphans)
	}
	db.MustExecSuper(`UPDATE embedsidecar.scan SET phase = 'waiting', requested = requested + 1`)
	r.start()
	r.settle()
	r.verify()
	if n := r.count(`SELECT count(*) FROM docs_embedding`); n != 3000 {
		t.Errorf("%d chunks, want those of 1500 rows", n)
	}
}

// A page that takes too long is given up, and smaller ones are read: a table whose text takes 20 ms a row is verified
// all the same, in statements that the server lets run for two seconds.
func TestP4_ASlowPageIsGivenUp(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int PRIMARY KEY, body text)`)
	db.MustExec(`CREATE FUNCTION slowly(body text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN body; END'`)
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(1, 300) AS i`)
	spec := intoTable("docs")
	spec.Columns, spec.Text = nil, `public.slowly(body)`
	r := newRig(t, db, spec)
	pool := connect(t, r.url, 2)
	given := 0
	w := worker.New(worker.Options{Pipeline: &r.pipelines[0], Log: logger(t), DB: canceled{pool, &given}})
	found, err := w.Verify(t.Context(), 0)
	if err != nil || found.Rows != 300 || found.Missing != 300 {
		t.Errorf("%+v, %v", found, err)
	}
	if given == 0 {
		t.Error("no statement was given up: 300 rows take six seconds")
	}
}

// canceled counts statements of transactions that the server ended for the time they took.
type canceled struct {
	*pgxpool.Pool
	n *int
}

func (c canceled) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return canceledResults{c.Pool.SendBatch(ctx, b), c.n}
}

type canceledResults struct {
	pgx.BatchResults
	n *int
}

func (r canceledResults) Tx() pgx.Tx {
	if tx := r.BatchResults.Tx(); tx != nil {
		return canceledTx{tx, r.n}
	}
	return nil
}

type canceledTx struct {
	pgx.Tx
	n *int
}

func (t canceledTx) Rollback(ctx context.Context) error {
	var pg *pgconn.PgError
	if _, err := t.Exec(ctx, "SELECT"); errors.As(err, &pg) && pg.Code == pgerrcode.InFailedSQLTransaction {
		*t.n++
	}
	return t.Tx.Rollback(ctx)
}
