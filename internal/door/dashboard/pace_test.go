package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// A comparison that has not begun shows no progress, whatever the previous one did, and compared rows are not
// necessarily embedded.
func TestPages_BackfillThatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	at, _ := r.serve(r.person, options{})
	b := r.signIn(at, "olga")
	b.becomes(t, "/pipelines", "Every row of these pipelines was compared")

	open, err := r.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	r.db.MustExec("SELECT embedsidecar.backfill('public.articles')")
	page := b.becomes(t, "/pipelines", "not begun", "none yet", "waits for")
	lacks(t, page, "24 compared")
	if api := b.get(http.StatusOK, "/api/v1/pipelines/public.articles"); !strings.Contains(api, `"scan_rows_seen":0`) {
		t.Errorf("the API says %s", api)
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.becomes(t, "/pipelines", "Every row of these pipelines was compared")

	r.db.MustExec("SELECT embedsidecar.pause('public.products')")
	r.db.MustExec("UPDATE products SET description = description || '.' WHERE sku < 'SKU-005'")
	b.becomes(t, "/pipelines", "10 compared", "compared, not yet embedded", `pipeline=public.products">4</a>`)
}

// While someone watches, pages show the speed of the queue and its estimated end.
func TestPages_SayWhenTheEndIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()()
	r.db.MustExec("INSERT INTO products SELECT 'X' || i, 'Cup ' || i FROM generate_series(1, 8000) AS i")
	r.slow, r.batch = time.Second, 16 // it takes minutes unless ended
	r.begin()
	at, _ := r.serve(r.person, options{})
	b := r.signIn(at, "vera")
	left := regexp.MustCompile(`(/s|now), about [\d.]+ (ms|s|min)( \d+ s)? to go</span>`)
	for _, path := range []string{"/", "/pipelines/public.products"} {
		testenv.Eventually(t, waitTimeout, func() (bool, string) {
			page := b.get(http.StatusOK, path)
			return left.MatchString(page), path + " does not say when the end is:\n" + page
		})
	}
	b.becomes(t, "/pipelines", `data-is="To go">`, `/s</span></td>`)
}
