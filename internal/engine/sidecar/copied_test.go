package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/replication"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// copied stops a database's server, copies it, and starts it again. The copy stands still.
func copied(t *testing.T, db *testenv.Database) *testenv.Server {
	t.Helper()
	if err := db.Server.Stop(testenv.Fast); err != nil {
		t.Fatal(err)
	}
	c, err := db.Server.Copy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := db.Server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Pool.Reset()
	db.Super().Reset()
	return c
}

// TestP1_AServerThatWentBack: the server is restored as it was before, while the sidecar runs. The position, the
// queue and the ledger go back with the rows; what the sidecar remembers does not count.
func TestP1_AServerThatWentBack(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})))
		db.MustExec(docs)
		r := newRig(t, db, oneOf(major)("docs", "body"))
		proxy := testenv.StartProxy(t, db.Server.Addr())
		r.url = db.URLVia(proxy.Addr(), r.role)
		r.options = func(o *sidecar.Options) { lossy(o); direct(o) }
		r.start()
		r.edit("first ")
		r.settle()
		backup := copied(t, db)
		r.edit("second ")
		db.MustExec(`INSERT INTO docs SELECT i, 'gone ' || i FROM generate_series(100, 5000) AS i`)
		r.settle()
		if err := db.Server.Stop(testenv.Killed); err != nil {
			t.Fatal(err)
		}
		if err := backup.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		proxy.SetTarget(backup.Addr())
		db.Move(backup)
		r.edit("second ") // the same again, and not the same
		db.MustExec(`UPDATE docs SET body = 'third' WHERE id < 5`)
		r.recovered(begin)
		r.url = db.URL(r.role)
		r.verify()
	})
}

// TestP1_ARestoredDumpIsNotWorked: a sidecar that does not stream judges no slot. In a dump of another server, a
// pipeline's table is found by an OID that may be another table's here.
func TestP1_ARestoredDumpIsNotWorked(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	var o sidecar.Options
	r.options = func(of *sidecar.Options) { o = *of }
	_, stop := r.start()
	r.settle()
	stop()
	db.MustExecSuper(`UPDATE embedsidecar.lsn_checkpoint SET system_id = '1'`)
	o.NoStream = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := sidecar.New(o).Run(ctx)
	if fatal, is := errors.AsType[*replication.FatalError](err); !is || fatal.Kind != replication.OtherServer ||
		!strings.Contains(fatal.Way, "--adopt") {
		t.Errorf("it ended with %v, want that the data came from another server", err)
	}
	if n := r.count(`SELECT count(*) FROM embedsidecar.worker`); n != 0 {
		t.Errorf("%d workers are registered", n)
	}
}

// TestP2_AClonedServerHarmsNobody: a copy of the server's files has its slot, its queue and its name, and a sidecar
// of its own, once with the slot and once without it, as a base backup is. Each has the vectors of its own rows, and
// neither reads the other's slot.
func TestP2_AClonedServerHarmsNobody(t *testing.T) {
	t.Parallel()
	for name, bare := range map[string]bool{"files": false, "base backup": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			majors := testenv.Majors(t)
			major := majors[len(majors)-1]
			db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})))
			db.MustExec(docs)
			r := newRig(t, db, intoTable("docs", "body"))
			r.edit("before ")
			_, stop := r.start()
			r.settle()
			stop()
			r.released()
			clone := copied(t, db)
			if bare {
				slots, err := filepath.Glob(filepath.Join(filepath.Dir(clone.Log()), "data", "pg_replslot", "*"))
				if err != nil || len(slots) != 1 {
					t.Fatal(slots, err)
				}
				if err := os.RemoveAll(slots[0]); err != nil {
					t.Fatal(err)
				}
			}
			if err := clone.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			twin := *r
			twin.db, twin.embedder = db.Twin(clone), newCounter()
			twin.url = twin.db.URL(r.role)
			sidecars := map[*rig]*sidecar.Sidecar{}
			for i, r := range []*rig{r, &twin} {
				sidecars[r], _ = r.start()
				r.edit(fmt.Sprint("of ", i, " "))
			}
			for i, r := range []*rig{r, &twin} {
				r.settle()
				r.edit(fmt.Sprint("again of ", i, " "))
				r.settle()
				r.verify()
				for text := range r.embedder.counts() {
					var of int
					if n, _ := fmt.Sscanf(text, "of %d", &of); n == 1 && of != i {
						t.Errorf("%d was sent %q, which is the other's", i, text)
					}
				}
				want := int64(0)
				if bare && i == 1 {
					want = 1
				}
				if n := sidecars[r].Stream().Gaps.Load(); n != want {
					t.Errorf("%d found %d gaps, want %d", i, n, want)
				}
			}
		})
	}
}
