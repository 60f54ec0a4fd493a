package sidecar_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_AnEmbeddingTableWhoseNameAnotherHasForAMoment: two generations exchange the names of their tables while a
// batch is under way, and exchange them back before it is written. No vector of the other table, which another model
// may have made, is taken for one of the pipeline's.
func TestP1_AnEmbeddingTableWhoseNameAnotherHasForAMoment(t *testing.T) {
	const exchange = `BEGIN; ALTER TABLE docs_embedding RENAME TO third; ALTER TABLE other RENAME TO docs_embedding;
		ALTER TABLE third RENAME TO other; COMMIT`
	db := testenv.DB(t)
	db.MustExec(docs)
	parts := paragraphs(21, 4)
	before, after := document(parts), document([]string{parts[3], parts[0], parts[1], parts[2]})
	r := newRig(t, db, chunked("docs", pipeline.Chunking{Strategy: pipeline.ChunkMarkdown, Tokens: 128}))
	r.options = func(o *sidecar.Options) { o.Heartbeat, o.CacheBytes = time.Hour, 1 }
	r.start()
	db.MustExec(`INSERT INTO docs (id, body) VALUES (1, $1)`, before)
	r.settle()
	db.MustExec(`CREATE TABLE other (LIKE docs_embedding INCLUDING ALL)`)
	db.MustExec(`INSERT INTO other SELECT * FROM docs_embedding`)
	db.MustExec(`UPDATE other SET embedding = '[1,2,3,4,5,6,7,8]'`) // by another model
	db.MustExec(`GRANT SELECT, INSERT, UPDATE, DELETE ON other TO ` + r.role)

	var there, back sync.Once
	var wrote atomic.Bool
	t.Cleanup(failpoint.Func("worker/after-read", func() error {
		there.Do(func() { db.MustExec(exchange) })
		return nil
	}))
	t.Cleanup(failpoint.Func("worker/after-embed", func() error {
		back.Do(func() { db.MustExec(exchange) })
		wrote.Store(true)
		return nil
	}))
	db.MustExec(`UPDATE docs SET body = $1`, after)
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return wrote.Load() || r.count(`SELECT count(*) FROM embedsidecar.task WHERE state = 'retrying'`) > 0,
			"nothing was read"
	})
	back.Do(func() { db.MustExec(exchange) }) // the batch met the other table and ended
	r.noticed()
	r.settle()
	r.verify()
}
