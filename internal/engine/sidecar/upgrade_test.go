package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// P8: a database with the schema of an older version, with vectors, ledger, rows that wait in the queue and changes
// that wait in the slot, is taken over by init. What waited is embedded, and no vector is computed again.
func TestP8_ADatabaseOfAnOlderVersionIsTakenOver(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]pipeline.Spec{
		"table": intoTable("docs", "body"), "column": column("docs", "body"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rows, queued = 50, 10
			db := testenv.DB(t)
			db.MustExec(docs)
			db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1::int) AS i`, rows)
			r := newRig(t, db, spec)
			r.options = unhurried
			s, stop := r.start()
			r.settle()
			r.straight(s)
			r.embedder.hook(func(context.Context, []string) error {
				return &embed.Error{Class: embed.Transient, Code: "dead", Err: errors.New("nobody is there")}
			})
			db.MustExec(`UPDATE docs SET body = 'in the queue ' || id WHERE id <= $1`, queued)
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				n := r.count(`SELECT count(*) FROM embedsidecar.task`)
				return n == queued, fmt.Sprintf("%d tasks", n)
			})
			stop()
			r.embedder.hook(nil)
			db.MustExec(`DELETE FROM docs WHERE id = $1`, rows)
			db.MustExec(`UPDATE docs SET body = 'in the slot' WHERE id = $1`, rows-1)

			db.TakeBack()
			r.init(spec)
			r.role = db.RunRole(r.pipelines...) // `embedsidecar roles`, for what is in the schema since
			r.url = db.URL(r.role)
			sent := r.embedder.sent()
			again, _ := r.start()
			r.settle()
			if n := r.embedder.sent() - sent; n != queued+1 {
				t.Errorf("%d texts were embedded, want those of %d changes", n, queued+1)
			}
			r.verify()
			if gaps := again.Stream().Gaps.Load(); gaps != 0 {
				t.Errorf("%d gaps", gaps)
			}
			r.straight(again)
			r.verify()
		})
	}
}
