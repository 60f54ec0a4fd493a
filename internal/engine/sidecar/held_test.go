package sidecar_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// worked is what somebody met who uses the table as a work queue.
type worked struct{ asked, refused, scans, missed int }

// work asks for rows of docs with NOWAIT and SKIP LOCKED until ctx ends.
func work(ctx context.Context, conn *pgx.Conn, rows int) (w worked, err error) {
	const near = 20
	for ctx.Err() == nil {
		from := 1 + rand.IntN(rows-near)
		w.asked++
		_, err := conn.Exec(ctx, `SELECT FROM docs WHERE id = $1 FOR UPDATE NOWAIT`, from)
		pg, _ := errors.AsType[*pgconn.PgError](err)
		switch {
		case pg != nil && pg.Code == pgerrcode.LockNotAvailable:
			w.refused++
		case err != nil && ctx.Err() == nil:
			return w, err
		}
		var n int
		w.scans++
		err = conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM docs WHERE id BETWEEN $1 AND $1 + $2::int - 1 FOR UPDATE SKIP LOCKED) AS r`, from, near).Scan(&n)
		if err != nil && ctx.Err() == nil {
			return w, err
		}
		if n < near && err == nil {
			w.missed++
		}
	}
	return w, nil
}

// A write-back to a column holds few of the user's rows, whatever a batch has, so that who asks for one with NOWAIT or
// SKIP LOCKED seldom meets it. How seldom is said, beside what whole batches would do.
func TestP4_AWriteBackHoldsFewRowsOfAColumn(t *testing.T) {
	const rows, most = 3000, 64
	for name, held := range map[string]int{"whole batches": -1, "as it is": 0} {
		t.Run(name, func(t *testing.T) {
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(`INSERT INTO docs SELECT i, repeat('body ' || i || ' ', 50) FROM generate_series(1, $1::int) AS i`, rows)
			r := newRig(t, db, column("docs", "body"))
			r.options = func(o *sidecar.Options) { o.HeldRows = held }
			conn, err := pgx.Connect(t.Context(), db.URL(testenv.Owner))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			ctx, stop := context.WithCancel(t.Context())
			var met worked
			over := make(chan error, 1)
			go func() {
				var err error
				met, err = work(ctx, conn, rows)
				over <- err
			}()
			began := time.Now()
			r.start()
			r.settle()
			took := time.Since(began)
			stop()
			if err := <-over; err != nil {
				t.Fatal(err)
			}
			t.Logf("%d rows in %s: %d of %d FOR UPDATE NOWAIT refused, %d of %d SKIP LOCKED scans missed rows", rows, took,
				met.refused, met.asked, met.missed, met.scans)
			n := r.count(`SELECT max(n) FROM (SELECT count(*) AS n FROM docs GROUP BY xmin) AS t`)
			if few := n <= most; few != (held == 0) {
				t.Errorf("a write-back held %d rows", n)
			}
			r.verify()
		})
	}
}
