package sidecar_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP1_AServerThatVanishes has every connection swallow what it is told, as when the host of the server is gone, or
// something on the way has lost what it knew: nobody says so, whether another server has taken over or the same still
// runs. What waited for answers goes on with new connections, and a statement that only takes its time is left alone.
func TestP1_AServerThatVanishes(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"the server": true, "the connections": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Own(t, testenv.Options{
				Major: slices.Max(testenv.Majors(t)), Config: map[string]string{"wal_sender_timeout": "3s"},
			})
			db := testenv.DB(t, testenv.On(server))
			db.MustExec(docs)
			r := newRig(t, db, intoTable("docs", "body"))
			proxy := testenv.StartProxy(t, db.Server.Addr())
			r.url, r.options, r.patience = db.URLVia(proxy.Addr(), r.role), lossy, 2*time.Second
			r.start()
			r.settle()
			var once sync.Once
			r.embedder.hook(func(context.Context, []string) error {
				once.Do(proxy.Vanish) // so that a vector is about to be written
				return nil
			})
			r.edit("unheard ")
			testenv.Eventually(t, waitTimeout, func() (bool, string) { return r.embedder.sent() > 0, "nothing is embedded" })
			if restarted {
				if err := db.Server.Restart(t.Context(), testenv.Killed); err != nil {
					t.Fatal(err)
				}
				db.Pool.Reset()
				db.Super().Reset()
			}
			r.edit("heard ")
			r.settle()
			r.url = db.URL(r.role)
			r.verify()
		})
	}
}

// TestP2_TheQueueIsRestored takes the queue back to what a dump of it said, under a living sidecar and its slot: rows
// that became due after the dump are in no queue, and the slot has been told that they are.
func TestP2_TheQueueIsRestored(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	r.options = lossy
	r.start()
	r.edit("dumped ")
	r.settle()
	db.MustExecSuper(`CREATE TABLE dumped AS SELECT lsn FROM embedsidecar.lsn_checkpoint; GRANT SELECT ON dumped TO PUBLIC`)
	db.MustExec(`SELECT embedsidecar.pause('docs')`)
	r.edit("queued ")
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM embedsidecar.task`) > 40 && testenv.Value[bool](db,
				`SELECT confirmed_flush_lsn > d.lsn FROM pg_replication_slots, dumped AS d WHERE slot_name = $1`, r.slot),
			"nothing is queued and confirmed"
	})
	db.MustExecSuper(`WITH forgotten AS (DELETE FROM embedsidecar.task)
		UPDATE embedsidecar.lsn_checkpoint AS c SET lsn = d.lsn FROM dumped AS d`)
	db.MustExec(`SELECT embedsidecar.resume('docs')`)
	db.MustExec(`INSERT INTO docs VALUES (1000, 'after the restore')`)
	r.settle()
	r.verify()
}
