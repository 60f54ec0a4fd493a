package sidecar_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestPriority_OfARowIsWhatItSays: beside rows that say nothing, or nothing that is a priority, and one of which it
// cannot be found out. A change of what only the priority reads embeds nothing, a hint counts for more, and an
// expression that takes long keeps no change from being queued.
func TestPriority_OfARowIsWhatItSays(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id bigint PRIMARY KEY, body text, severity text, naps float8 NOT NULL DEFAULT 0)`)
	spec := intoTable("docs", "body")
	spec.PriorityBy = `case severity when 'critical' then 'urgent' when 'trivial' then 'low' when 'broken'
		then (1 / (id - id))::text when 'slow' then (naps || coalesce(pg_sleep(naps)::text, '')) else severity end`
	r := newRig(t, db, spec)
	db.MustExec(`GRANT SELECT (severity, naps) ON docs TO ` + r.role)
	r.known()
	r.options = func(o *sidecar.Options) { o.Quick = waitTimeout } // however slow the machine is
	_, stop := r.start()
	r.settle()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	writer := &hints{t: t, conn: newWriter(t, db, true)}
	db.MustExec(`INSERT INTO docs VALUES (1, 'a', 'critical'), (2, 'a', 'trivial'), (3, 'a', 'high'), (4, 'a', 'soon'),
		(5, 'a', NULL), (6, 'a', 'broken'), (7, 'a', 'normal')`)
	writer.exec(`BEGIN; SELECT embedsidecar.hint('low'); INSERT INTO docs VALUES (8, 'a', 'critical'); COMMIT`)
	lanes := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			got := testenv.Values[string](db, `SELECT row_key || ' ' || priority FROM embedsidecar.tasks ORDER BY 1`)
			return slices.Equal(got, want), fmt.Sprintf("%q, want %q", got, want)
		})
	}
	lanes("1 urgent", "2 low", "3 high", "4 normal", "5 normal", "6 normal", "7 normal", "8 low")
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	sent := r.embedder.sent()
	db.MustExec(`UPDATE docs SET severity = 'critical' WHERE id <> 6`)
	r.counted()
	if n := r.count(`SELECT count(*) FROM embedsidecar.task`); n != 0 || r.embedder.sent() != sent {
		t.Errorf("%d tasks, %d texts embedded, for columns that no text reads", n, r.embedder.sent()-sent)
	}
	stop()
	r.options = nil
	r.start()
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	db.MustExec(`INSERT INTO docs VALUES (9, 'b', 'slow', 3600)`)
	lanes("9 normal")
	db.MustExec(`DELETE FROM docs WHERE id = 9`)
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	r.settle()
	r.verify()
}
