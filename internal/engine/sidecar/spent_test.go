package sidecar_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/sidecar"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP6_WhatIsSpentIsNoChangeOfThePipeline: another version of its row would have every sidecar load all pipelines,
// each minute in which something is embedded.
func TestP6_WhatIsSpentIsNoChangeOfThePipeline(t *testing.T) {
	t.Parallel()
	testenv.EachMajor(t, func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.Major(major))
		db.MustExec(docs)
		r := newRig(t, db, intoTable("docs", "body"))
		r.options = func(o *sidecar.Options) { o.Heartbeat = 100 * time.Millisecond }
		_, stop := r.start()
		db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
		stored := func(want int64) {
			t.Helper()
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				st, err := report.Read(t.Context(), db.Super())
				if err != nil {
					t.Fatal(err)
				}
				got := st.Pipelines[0].Saved.Embedded
				return got == want, fmt.Sprintf("%d texts embedded, want %d", got, want)
			})
		}
		version := func() string {
			return testenv.Value[string](db, `SELECT xmin::text FROM embedsidecar.pipeline`)
		}
		r.settle()
		r.noticed()
		stored(1)
		before := version()
		db.MustExec(`INSERT INTO docs VALUES (2, 'two')`)
		stored(2)
		db.MustExec(`INSERT INTO docs VALUES (3, 'three')`)
		r.settle()
		stop()
		stored(3)
		if after := version(); after != before {
			t.Errorf("the row of the pipeline is of version %s, and was of %s", after, before)
		}
	})
}

// TestP10_WhatIsSpentIsStoredOnce: the server stores what was spent and no answer comes, so that it is not known here.
func TestP10_WhatIsSpentIsStoredOnce(t *testing.T) {
	t.Parallel()
	db := testenv.DB(t)
	db.MustExec(docs)
	r := newRig(t, db, intoTable("docs", "body"))
	// The commit of what was spent waits for a lock.
	db.MustExecSuper(`CREATE TABLE public.gate (); GRANT SELECT ON public.gate TO PUBLIC;
		CREATE FUNCTION public.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			LOCK TABLE public.gate IN ACCESS SHARE MODE; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER pass AFTER INSERT OR UPDATE ON embedsidecar.spent DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION public.pass()`)
	proxy := testenv.StartProxy(t, db.Server.Addr())
	r.url, r.patience = db.URLVia(proxy.Addr(), r.role), waitTimeout
	r.options = func(o *sidecar.Options) { o.Heartbeat = 100 * time.Millisecond }
	r.start()
	r.settle()
	gate := r.locking("LOCK TABLE public.gate IN ACCESS EXCLUSIVE MODE")
	db.MustExec(`INSERT INTO docs VALUES (1, 'one')`)
	var storing int64
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		storing = r.count(`SELECT coalesce(min(pid), 0) FROM pg_locks WHERE relation = 'public.gate'::regclass AND NOT granted`)
		return storing > 0, "nothing is stored"
	})
	proxy.Stall(testenv.ToClient)
	r.rollback(gate)
	stored := func(want int64) (bool, string) {
		got := r.count(`SELECT coalesce(sum(texts_embedded), 0) FROM embedsidecar.spent`)
		return got >= want, fmt.Sprintf("%d texts embedded, want %d", got, want)
	}
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return stored(1) })
	testenv.Eventually(t, waitTimeout, func() (bool, string) {
		return r.count(`SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, storing) == 0, "the answer is waited for"
	})
	proxy.Resume()
	db.MustExec(`INSERT INTO docs SELECT i, 'text ' || i FROM generate_series(2, 11) AS i`)
	testenv.Eventually(t, waitTimeout, func() (bool, string) { return stored(11) })
	if got := r.count(`SELECT sum(texts_embedded) FROM embedsidecar.spent`); got != 11 {
		t.Errorf("%d texts are stored as embedded, want 11", got)
	}
}
