package sidecar_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_AKeyThatBecomesWiderCostsNothing: id was an int, as Django made it once, and becomes a bigint.
func TestP8_AKeyThatBecomesWiderCostsNothing(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(`CREATE TABLE docs (id int, part varchar(4), body text, PRIMARY KEY (id, part))`)
	db.MustExec(`INSERT INTO docs SELECT i, 'p' || i % 3, 'text ' || i FROM generate_series(1, 100) AS i`)
	spec := intoTable("docs", "body")
	r := newRig(t, db, spec)
	r.options = func(o *sidecar.Options) { o.CacheBytes = 1 }
	s, _ := r.start()
	r.settle()
	db.MustExec(`ALTER TABLE docs ALTER id TYPE bigint, ALTER part TYPE text`)
	reason(t, s, "docs", "embedsidecar init",
		`ALTER TABLE "public"."docs_embedding" ALTER COLUMN "id" TYPE bigint, ALTER COLUMN "part" TYPE text`)
	done := r.init(spec)
	if len(done.Steps) == 0 || done.Steps[0].SQL[0] != `ALTER TABLE "public"."docs_embedding" ALTER COLUMN "id" TYPE bigint, ALTER COLUMN "part" TYPE text` {
		t.Errorf("init did %+v", done.Steps)
	}
	r.works(s, "docs")
	db.MustExec(`INSERT INTO docs VALUES (5000000000, 'longer than four', 'new')`)
	r.settle()
	if n := r.embedder.sent(); n != 101 {
		t.Errorf("%d texts were sent for 101", n)
	}
	r.verify()
}

// A row whose key changes keeps its text: its vector is not bought again, in whatever order the two keys come, nor by a
// process that remembers nothing.
func TestP8_AKeyThatChangesCostsNothing(t *testing.T) {
	t.Parallel()
	bothDestinations(t, func(t *testing.T, spec func(string, ...string) pipeline.Spec) {
		t.Helper()
		db := testenv.DB(t)
		db.MustExec(`CREATE TABLE docs (id text PRIMARY KEY, body text)`)
		db.MustExec(`INSERT INTO docs SELECT 'a' || i, 'text ' || i FROM generate_series(1, 1000) AS i`)
		r := newRig(t, db, spec("docs", "body"))
		_, stop := r.start()
		r.settle()
		for _, key := range []string{"'b'", "'a'"} { // old keys come first, new ones come first
			stop()
			s, again := r.start()
			stop = again
			r.works(s, "docs")
			db.MustExec(`UPDATE docs SET id = ` + key + ` || substr(id, 2)`)
			r.settle()
			if n := r.embedder.sent(); n != 1000 {
				t.Errorf("%d texts were sent for 1000", n)
			}
		}
		// A vector that is not of the text is none, whoever wrote it.
		db.MustExec(`UPDATE docs SET id = 'c' || substr(id, 2), body = body || ' edited' WHERE id < 'a2'`)
		r.settle()
		r.verify()
	})
}
