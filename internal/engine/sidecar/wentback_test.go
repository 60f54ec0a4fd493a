package sidecar_test

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_AServerThatWentBackInTime gives a living sidecar, in place of its server, one as it was a while ago, which
// gives out the places of tasks, leases and epochs once more: a snapshot of its disk, with or without the slot, and a
// backup that was recovered, on a timeline of its own.
func TestP1_AServerThatWentBackInTime(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct{ recovered, slotGone bool }{
		"snapshot": {}, "snapshot without the slot": {slotGone: true}, "recovered backup": {recovered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.EachMajor(t, func(t *testing.T, major int) {
				t.Helper()
				t.Parallel()
				const rows = 700 // more than are worked at once
				db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})))
				db.MustExec(docs)
				db.MustExec(`INSERT INTO docs SELECT i, 'body ' || i FROM generate_series(1, $1) AS i`, rows)
				r := newRig(t, db, intoTable("docs", "body"))
				proxy := testenv.StartProxy(t, db.Server.Addr())
				r.url = db.URLVia(proxy.Addr(), r.role)
				r.options = func(o *sidecar.Options) { lossy(o); o.Failover = true }
				r.start()
				r.settle()
				if err := db.Server.Stop(testenv.Fast); err != nil {
					t.Fatal(err)
				}
				before, err := db.Server.Copy(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := before.Close(); err != nil {
						t.Error(err)
					}
				})
				if how.recovered {
					if err := before.Recover(); err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Server.Resume(t.Context()); err != nil {
					t.Fatal(err)
				}
				db.Pool.Reset()
				db.Super().Reset()
				for range 6 {
					db.MustExec(`UPDATE docs SET body = body || ' that is lost'`)
					r.settle()
				}
				if err := db.Server.Stop(testenv.Killed); err != nil {
					t.Fatal(err)
				}
				if err := before.Resume(t.Context()); err != nil {
					t.Fatal(err)
				}
				db.Move(before)
				testenv.Eventually(t, waitTimeout, func() (bool, string) {
					return testenv.Value[bool](db, `SELECT NOT pg_is_in_recovery()`), "it is still being recovered"
				})
				scans := r.count(`SELECT sum(requested) FROM embedsidecar.scan`)
				if how.slotGone {
					db.MustExecSuper(`SELECT pg_drop_replication_slot($1)`, r.slot)
				}
				proxy.SetTarget(before.Addr())
				for range 2 {
					db.MustExec(`UPDATE docs SET body = body || ' that stays'`)
					r.settle()
					r.verify()
				}
				if asked := r.count(`SELECT sum(requested) FROM embedsidecar.scan`); asked == scans {
					t.Error("no row was compared: what was under way may have been written here")
				}
			})
		})
	}
}
