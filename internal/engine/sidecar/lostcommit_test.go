package sidecar_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_ACommitThatACrashForgot: a batch reads a row as a commit left it that was not on disk yet (synchronous_commit
// = off), and the server forgets that commit while the row is embedded. The lease is older than the commit, and still
// there: its vector would be of a text that no row has. A restored snapshot of a disk is the same.
func TestP1_ACommitThatACrashForgot(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		t.Parallel()
		// Nobody but who commits, and waits for it, writes WAL to disk.
		server := testenv.Own(t, testenv.Options{Major: major, Config: map[string]string{"wal_writer_delay": "10s"}})
		db := testenv.DB(t, testenv.On(server))
		db.MustExec(docs)
		db.MustExec(`INSERT INTO docs VALUES (1, 'body')`)
		r := newRig(t, db, intoTable("docs", "body"))
		proxy := testenv.StartProxy(t, server.Addr())
		r.url = db.URLVia(proxy.Addr(), r.role)
		r.start()
		r.settle()
		for try := 0; ; try++ {
			forgotten := fmt.Sprintf("forgotten %d", try)
			reached, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			r.embedder.hook(func(_ context.Context, texts []string) error {
				if texts[0] == forgotten {
					once.Do(func() { close(reached) })
					<-release
				}
				return nil
			})
			tx, err := db.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{"SET LOCAL synchronous_commit = off", "LOCK docs"} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			// A worker leases the task and waits for the lock, so that its lease is older than what it reads.
			db.MustExec("SELECT embedsidecar.requeue('public.docs', ARRAY['1'])")
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				n := r.count(`SELECT count(*) FROM pg_locks WHERE relation = 'docs'::regclass AND NOT granted`)
				return n > 0, fmt.Sprint(n)
			})
			if _, err := tx.Exec(t.Context(), "UPDATE docs SET body = $1", forgotten); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-reached
			epoch := r.count("SELECT epoch FROM embedsidecar.lsn_checkpoint")
			if err := server.Restart(t.Context(), testenv.Killed); err != nil {
				t.Fatal(err)
			}
			db.Pool.Reset()
			db.Super().Reset()
			proxy.SetTarget(server.Addr())
			was := r.count("SELECT count(*) FROM docs WHERE body = $1", forgotten)
			testenv.Eventually(t, waitTimeout, func() (bool, string) { // the sidecar is back, in each of its ways
				n := r.count(`SELECT count(*) FROM embedsidecar.lsn_checkpoint AS c, embedsidecar.worker AS w
					WHERE c.epoch > $1 AND w.last_seen_at > pg_postmaster_start_time() + interval '2 s'`, epoch)
				return n > 0, fmt.Sprint(n)
			})
			t.Log("forgotten rows that are there:", was)
			close(release)
			r.settle()
			r.verify()
			if was == 0 {
				return
			}
		}
	})
}
