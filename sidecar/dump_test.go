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
		copied := &rig{t: t, db: into, slot: r.slot, embedder: r.embedder, adopt: true}
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
