package sidecar_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP2_PositionsAndTransactionIdsMayBeLarge: the WAL of a server is beyond 2^63 bytes, where a signed number ends,
// and its transaction ids are beyond 2^32, where those in the WAL begin anew.
func TestP2_PositionsAndTransactionIdsMayBeLarge(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		server := testenv.Own(t, testenv.Options{Major: major})
		if err := server.Stop(testenv.Fast); err != nil {
			t.Fatal(err)
		}
		reset := exec.CommandContext(t.Context(), filepath.Join(server.Bin(), "pg_resetwal"), "--next-wal-file=00000001FFFFFFF000000001",
			"--epoch=7", filepath.Join(filepath.Dir(server.Log()), "data"))
		reset.Dir, reset.SysProcAttr = "/", testenv.Unprivileged()
		if out, err := reset.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := server.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		db := testenv.DB(t, testenv.On(server))
		db.MustExec(docs)
		if !testenv.Value[bool](db, `SELECT pg_current_wal_lsn() > '80000000/0' AND pg_current_xact_id()::text::numeric > 4294967296`) {
			t.Fatal("the server's numbers are small")
		}
		r := newRig(t, db, oneOf(major)("docs", "body"))
		r.edit("before ")
		_, stop := r.start()
		r.settle()
		r.edit("while it runs ")
		r.settle()
		r.verify()
		stop()
		r.released()
		r.edit("while nobody runs ")
		r.options = direct
		s, _ := r.start()
		r.settle()
		r.edit("at once ")
		r.settle()
		r.verify()
		if n := s.Stream().Gaps.Load(); n != 0 {
			t.Errorf("%d gaps, want none", n)
		}
		for _, view := range []string{"status", "health", "progress", "slots", "tasks", "row_state"} {
			db.MustExec(`SELECT * FROM embedsidecar.` + view)
		}
	})
}
