package sidecar_test

import (
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP10_AWaitKnowsOfAlteredTables: nothing of these changes comes through the slot, and the next heartbeat is an hour away.
func TestP10_AWaitKnowsOfAlteredTables(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]string{
		"another type": {`ALTER TABLE docs ALTER body TYPE varchar USING body || '!'`},
		"a partition that is attached": {
			`CREATE TABLE docs_b (LIKE docs INCLUDING ALL)`, `INSERT INTO docs_b (id, body) SELECT i, 'body ' || i FROM generate_series(101, 119) AS i`,
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
