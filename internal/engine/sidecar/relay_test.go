package sidecar_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_StreamAndWorkApart: one process reads the slot and another embeds. No heartbeat comes within the test, so that
// changes arrive only if the one tells the other.
func TestP1_StreamAndWorkApart(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, 50) AS i`)
	r := newRig(t, db, intoTable("docs", "body"))
	apart := func(set func(o *sidecar.Options)) (stop func()) {
		r.options = func(o *sidecar.Options) {
			o.Heartbeat = time.Hour
			set(o)
		}
		_, stop = r.start()
		return stop
	}
	stopStream := apart(func(o *sidecar.Options) { o.NoWork = true })
	stopWork := apart(func(o *sidecar.Options) { o.NoStream = true })
	r.settle()
	for range 3 {
		db.MustExec(`UPDATE docs SET body = body || '!' WHERE id % 10 = 0`)
		r.settle()
	}
	r.verify()

	// Who streams is asked for vectors of texts, and has no model.
	newSearcher(t, db, 18).refused(`SELECT embedsidecar.embed('a text')`, "38000", "--role stream")

	// Either may be replaced while the other goes on.
	stopWork()
	db.MustExec(`UPDATE docs SET body = body || '?' WHERE id < 10`)
	stopWork = apart(func(o *sidecar.Options) { o.NoStream = true })
	r.settle()
	stopStream()
	db.MustExec(`DELETE FROM docs WHERE id > 45`)
	apart(func(o *sidecar.Options) { o.NoWork = true })
	r.settle()
	stopWork()
	r.verify()
}
