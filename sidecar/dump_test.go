package sidecar_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP8_ARestoredDumpIsTakenUp takes a database to another server with pg_dump and pg_restore: the tables have other numbers there, and the
// rows are the same but for one that is changed before the sidecar starts.
func TestP8_ARestoredDumpIsTakenUp(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		from := testenv.DB(t, testenv.On(testenv.Shared(t, major)))
		chunked := intoTable("notes", "body")
		chunked.Chunking = pipeline.Chunking{Strategy: pipeline.ChunkTokens, Tokens: 16}
		specs := []pipeline.Spec{column("docs", "body"), chunked, intoTable("pages", "body")}
		for _, spec := range specs {
			from.MustExec(`CREATE TABLE ` + spec.Table + ` (id bigint PRIMARY KEY, body text)`)
			from.MustExec(`INSERT INTO ` + spec.Table + ` SELECT i, '` + spec.Table + ` ' || i FROM generate_series(1, 150) AS i`)
		}
		r := newRig(t, from, specs...)
		_, stop := r.start()
		r.settle()
		r.verify()
		stop()
		sent := r.embedder.sent()

		server := ownServer(t, major, nil)
		into := testenv.DB(t, testenv.On(server), testenv.Empty())
		file := filepath.Join(t.TempDir(), "dump")
		for _, args := range [][]string{
			{"pg_dump", "--no-acl", "--format=custom", "--file=" + file, from.URL(testenv.Superuser)},
			{"pg_restore", "--no-acl", "--exit-on-error", "--dbname=" + into.URL(testenv.Superuser), file},
		} {
			if out, err := exec.CommandContext(t.Context(), filepath.Join(server.Bin(), args[0]), args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", args[0], err, out)
			}
		}
		into.MustExec(`UPDATE docs SET body = 'changed since the dump' WHERE id = 7`)
		copied := &rig{t: t, db: into, slot: r.slot, embedder: r.embedder, adopt: true, published: from.Name + "_pub"}
		copied.options = func(o *sidecar.Options) { o.CacheBytes = 1 }
		copied.init(specs...)
		copied.role = into.RunRole(copied.pipelines...)
		copied.url = into.URL(copied.role)
		copied.start()
		copied.settle()
		if n := r.embedder.sent() - sent; n != 1 {
			t.Errorf("%d texts were sent, want that of the row that changed", n)
		}
		copied.verify()
	})
}

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
	reason(t, s, "docs", "embedsidecar init", `ALTER TABLE "public"."docs_embedding" ALTER COLUMN "id" TYPE bigint, ALTER COLUMN "part" TYPE text`)
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
