//go:build linux

package e2e

import (
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/testenv"
)

// TestP9_LargeValuesNobodyWatches: what a change has beside the watched columns is read past, wherever it stands in the
// row, in new rows and in old ones.
func TestP9_LargeValuesNobodyWatches(t *testing.T) {
	t.Parallel()
	testenv.InTurn(t, 1, "EMBEDSIDECAR_KILLS", func(t *testing.T, major int) {
		t.Helper()
		db := testenv.DB(t, testenv.On(testenv.Own(t, testenv.Options{Major: major})), testenv.Empty())
		db.MustExec(`CREATE TABLE public.docs (file text, id bigint, body text, copy text, PRIMARY KEY (id));
			ALTER TABLE public.docs ALTER file SET STORAGE EXTERNAL`)
		r := newRig(t, db, pipeline.Spec{
			Name: "docs", Schema: "public", Table: "docs", Columns: []string{"body"}, IntoColumn: "embedding",
		})
		r.senderTimeout("1min")
		c := r.runPlain()
		r.streaming(c)
		embedded := func() {
			t.Helper()
			r.caughtUp()
			if n := r.count(`SELECT count(*) FROM public.docs WHERE embedding IS NULL`); n > 0 {
				t.Errorf("%d rows have no vector", n)
			}
		}
		db.MustExec(`INSERT INTO public.docs SELECT '', i, 'small ' || i FROM generate_series(1, 3) AS i`)
		embedded()
		before, changes := c.peak(), r.sent()

		db.MustExec(`UPDATE public.docs SET file = repeat('x', 200000000), body = 'beside it', copy = repeat('y', 50000000) WHERE id = 1`)
		db.MustExec(`INSERT INTO public.docs VALUES (repeat('x', 200000000), 4, 'with it')`)
		embedded()
		db.MustExec(`ALTER TABLE public.docs REPLICA IDENTITY FULL`)
		db.MustExec(`UPDATE public.docs SET body = 'of old' WHERE id = 1`) // file is as it was, and comes with the old row
		db.MustExec(`UPDATE public.docs SET id = 5 WHERE id = 4`)          // the key comes after it, twice
		db.MustExec(`UPDATE public.docs SET copy = '' WHERE id = 1`)       // nothing that is watched
		embedded()
		if n := r.sent() - changes; n < 3 || n > 4 { // that of the moved row may be asked for again
			t.Errorf("%d texts were sent, want 3 or 4", n)
		}
		r.do(0, "verify", "--deep", "10")
		db.MustExec(`DELETE FROM public.docs WHERE id = 1`)
		r.caughtUp()
		if after := c.peak(); after > before+64<<10 {
			t.Errorf("memory went from %d to %d KiB", before, after)
		}
		c.mustLive()
		c.terminate()
	})
}
