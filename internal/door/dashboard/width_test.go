package dashboard_test

import (
	"fmt"
	"strings"
	"testing"
)

// fits fails the test if anything needs horizontal scrolling: scrolling parts of the page, and content beyond the right
// edge.
func (c *chrome) fits(where string) {
	c.t.Helper()
	wide := eval[[]string](c, `[...document.querySelectorAll("body, body *")].filter((e) => {
			if (e.closest(".hidden, .skip, svg") || !e.checkVisibility()) return false;
			const scrolls = ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth;
			return scrolls || e.getBoundingClientRect().right > innerWidth + 1;
		}).slice(0, 3).map((e) => e.outerHTML.slice(0, 300))`)
	for _, e := range wide {
		c.t.Errorf("%s is wider than the screen with %s", where, e)
	}
}

// Nothing needs horizontal scrolling on a phone, however long names, keys and messages are.
func TestBrowser_Narrow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()()
	long := "knowledge_base.conversations_of_customers_with_support_before_2024"
	r.db.MustExec("UPDATE embedsidecar.pipeline SET name = $1 WHERE name = 'public.tickets'", long)
	r.db.MustExec(`UPDATE embedsidecar.task SET row_key = 'b0f7c1d2-5a3e-4f6b-9c8d-7e6f5a4b3c2d|' || repeat('x', 60), error_message = repeat('no_space', 30)
		WHERE row_key = '1007'`)
	r.db.MustExec("SELECT embedsidecar.pause($1, said_by => $2)", long, "somebody-with-a-long-name@a-machine.of-a-long-name.example")
	r.db.MustExec("SELECT embedsidecar.backfill('public.articles')")
	at, _ := r.serve(r.person, options{texts: true})
	c := newChrome(t, at)
	c.open("/login#token=ada")
	c.until("signed in", `document.querySelector("#live-pipelines")`)
	narrow := []look{{"phone", "light", 390, 844}, {"small phone", "dark", 340, 700}, {"tablet", "light", 800, 1100}}
	for _, p := range photographs {
		c.open(strings.ReplaceAll(p.path, "public.tickets", long))
		for _, l := range narrow {
			c.as(l, 0)
			c.accessible(fmt.Sprintf("%s, on a %s", p.name, l.name))
		}
	}
	c.open("/nowhere")
	c.accessible("a page that is none")

	// With many pipelines, the findings follow after the page.
	r.db.MustExec(`INSERT INTO embedsidecar.pipeline OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(p,
		jsonb_build_object('pipeline_id', 1000 + i, 'name', 'p' || i, 'destination_table', 'e' || i, 'destination_oid', i))).*
		FROM embedsidecar.pipeline AS p, generate_series(1, 21) AS i WHERE p.name = $1`, long)
	c.at, _ = r.serve(r.person, options{})
	c.open("/login#token=ada")
	c.until("signed in", `document.querySelector("#live-pipelines")`)
	c.open("/checks")
	c.until("found", `!document.querySelector("[data-again]") &&
		document.querySelector("#live-checks").innerText.includes("max_slot_wal_keep_size")`)
}
