package dashboard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/embedsidecar/embedsidecar/testenv"
)

var update = flag.Bool("update", false, "photograph the pages anew, into docs/screenshots")

const screenshots = "../../../docs/screenshots"

// browserTimeout limits the waits for a browser.
const browserTimeout = waitTimeout

// axeVersion is the version that tools/axe.sh downloads.
const axeVersion = "4.14.1"

// chrome is a tab of a real browser. Every script error on a page fails the test.
type chrome struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // the tab is in it
	at  string
	axe string
}

func newChrome(t *testing.T, address string) *chrome {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && program == "" {
			program = found
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	axe, err := os.ReadFile(filepath.Join(cache, "embedsidecar", "axe-core-"+axeVersion, "axe.min.js"))
	if program == "" || err != nil {
		t.Fatalf("chromium: %q; axe-core: %v: make browser gets both", program, err)
	}
	allocated, end := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-gpu", true),
		chromedp.WSURLReadTimeout(waitTimeout))...)
	t.Cleanup(end)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); end() })
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	return &chrome{t: t, ctx: ctx, at: address, axe: string(axe)}
}

func (c *chrome) do(steps ...step) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		c.t.Fatal(err)
	}
}

type step = chromedp.Action[chromedp.Void]

// eval runs a script and returns its result, awaiting a promise.
func eval[T any](c *chrome, script string) T {
	c.t.Helper()
	value, err := tried[T](c, script)
	if err != nil {
		c.t.Fatal(err)
	}
	return value
}

// tried is like eval on a page that may be left while the script runs, which is an error.
func tried[T any](c *chrome, script string) (T, error) {
	ctx, cancel := context.WithTimeout(c.ctx, browserTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// open navigates to a page, and waits for the page and its script.
func (c *chrome) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.at+path), chromedp.WaitReady(chromedp.CSS("main")))
	if !strings.Contains(path, "#") {
		c.until("there", fmt.Sprintf(`location.pathname + location.search === %q && document.readyState === "complete" &&
			document.querySelector("#pulse")`, path))
	}
}

// here describes the current page.
const here = "location.href + ' ' + document.querySelector('#pulse')?.dataset.state + ' ' + document.body?.innerText"

// until waits until a script returns true.
func (c *chrome) until(what, script string) {
	c.t.Helper()
	testenv.Eventually(c.t, browserTimeout, func() (bool, string) {
		if is, err := tried[bool](c, "Boolean("+script+")"); err != nil || is {
			return err == nil, fmt.Sprint(what, ": ", err)
		}
		at, err := tried[string](c, here)
		return false, fmt.Sprint(what, ", on ", at, " ", err)
	})
}

// look is a screen size and theme.
type look struct {
	name, theme   string
	width, height int64
}

var looks = []look{
	{"light", "light", 1280, 800}, {"dark", "dark", 1280, 800}, {"phone", "dark", 390, 844},
}

// as sets a look, on a screen that may be higher.
func (c *chrome) as(l look, height int64) {
	c.t.Helper()
	c.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: l.theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}), chromedp.EmulateViewport(l.width, max(l.height, height)))
}

// accessible fails the test for every serious or critical finding of axe.
func (c *chrome) accessible(where string) {
	c.t.Helper()
	if !eval[bool](c, "typeof axe === 'object'") {
		eval[chromedp.Void](c, c.axe)
	}
	found := eval[string](c, `axe.run({resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.filter((v) =>
		["serious", "critical"].includes(v.impact)).map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" "))))`)
	var list []string
	if err := json.Unmarshal([]byte(found), &list); err != nil {
		c.t.Fatal(err)
	}
	for _, violation := range list {
		c.t.Errorf("%s: %s", where, violation)
	}
	c.fits(where)
}

// photograph takes a picture of the page, up to a maximum height.
func (c *chrome) photograph(name string, l look) {
	c.t.Helper()
	const most = 1650
	if eval[bool](c, "document.querySelector('#pulse')?.dataset.follows === 'yes'") {
		c.until("live", "document.querySelector('#pulse').dataset.state === 'live'")
	}
	// The pictures do not contain what changes from day to day: the date, and names from the test.
	eval[bool](c, `(() => {
		const day = Date.UTC(2026, 10, 22, 9, 41, 7) - Date.now();
		for (const t of document.querySelectorAll("time[datetime]"))
			t.textContent = new Date(Date.parse(t.dateTime) + day).toISOString().slice(0, 19).replace("T", " ");
		const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
		for (let name = /\bt_[a-z0-9]+_\d+_(s1|pub|r1)\b/g; texts.nextNode();)
			texts.currentNode.data = texts.currentNode.data.replace(name, "embedsidecar");
		return true;
	})()`)
	// A picture that is cut off ends below an element, not within one.
	high := max(eval[int64](c, fmt.Sprintf(`(() => {
		const whole = document.documentElement.scrollHeight;
		const ends = [...document.querySelectorAll(".card, .hero, .charts figure, tbody tr, main li")]
			.filter((e) => e.checkVisibility({contentVisibilityAuto: true}))
			.map((e) => Math.ceil(e.getBoundingClientRect().bottom + scrollY) + 1);
		return whole <= %[1]d ? whole : Math.max(0, ...ends.filter((end) => end <= %[1]d));
	})()`, most)), l.height)
	c.as(l, high)
	shot, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(screenshots, name+"-"+l.name+".png"), c.small(shot), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// small reduces the colors of a picture to a palette.
func (c *chrome) small(shot []byte) []byte {
	c.t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		c.t.Fatal(err)
	}
	bounds, seen := full.Bounds(), map[color.RGBA]int{}
	at := func(x, y int) color.RGBA {
		r, g, b, _ := full.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[at(x, y)]++
		}
	}
	often := make([]color.RGBA, 0, len(seen))
	for rgb := range seen {
		often = append(often, rgb)
	}
	slices.SortFunc(often, func(a, b color.RGBA) int {
		if seen[a] != seen[b] {
			return seen[b] - seen[a]
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	var palette color.Palette
	for _, rgb := range often[:min(128, len(often))] {
		palette = append(palette, rgb)
	}
	few, known := image.NewPaletted(bounds, palette), map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			rgb := at(x, y)
			index, ok := known[rgb]
			if !ok {
				index = uint8(palette.Index(rgb))
				known[rgb] = index
			}
			few.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		c.t.Fatal(err)
	}
	return out.Bytes()
}

// photographs are the pages with the names of their pictures.
var photographs = []struct{ name, path string }{
	{"overview", "/"},
	{"pipelines", "/pipelines"},
	{"pipeline", "/pipelines/public.tickets"},
	{"row", "/row?pipeline=public.tickets&key=1007"},
	{"search", "/search?pipeline=public.articles&q=I+forgot+my+password&text=1&k=5"},
	{"queue", "/queue?pipeline=public.tickets"},
	{"errors", "/errors"},
	{"dead-letters", "/dead-letters?pipeline=public.tickets"},
	{"system", "/system"},
	{"models", "/models"},
	{"checks", "/checks"},
	{"audit", "/audit"},
	{"config", "/config"},
	{"help", "/help"},
}

// In a real browser: a token in the URL signs in, every page is accessible in both themes and on a phone, the buttons
// work, and pages get updates.
func TestBrowser(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.work()
	at, end := r.serve(r.person, options{texts: true})
	c := newChrome(t, at)
	c.as(looks[0], 0)
	c.open("/login#token=ada")
	c.until("signed in", `document.querySelector("#live-pipelines")`)
	if at := eval[string](c, "location.href"); strings.Contains(at, "token") {
		t.Errorf("the token is left in the address: %s", at)
	}
	r.stage()
	testenv.Eventually(t, browserTimeout, func() (bool, string) { // a page is at most a second old
		c.open("/pipelines")
		page := eval[string](c, "document.querySelector('#live-pipelines').innerText")
		return strings.Contains(page, "paused") && (!*update || strings.Contains(page, "60.0%")), page
	})
	for _, p := range photographs {
		c.open(p.path)
		if p.name == "search" { // a link alone does not search
			eval[bool](c, `(() => { document.querySelector("main form").requestSubmit(); return true; })()`)
			c.until("found", `document.querySelector(".hits")`)
		}
		for _, l := range looks {
			if l.name == "dark" && !*update { // the phone's is dark, too
				continue
			}
			c.as(l, 0)
			c.accessible(p.name + ", " + l.name)
			if *update {
				c.photograph(p.name, l)
			}
		}
		c.as(looks[0], 0)
	}
	for _, path := range []string{"/?by=pipeline", "/help/search", "/queue?state=finished", "/queue?lanes=1"} {
		c.open(path)
		for _, l := range []look{looks[0], looks[2]} {
			c.as(l, 0)
			c.accessible(path + ", " + l.name)
		}
		c.as(looks[0], 0)
	}
	c.theme()
	c.every(0) // so that clicked elements stay in place
	c.prioritisesOnAPhone(r)
	c.clicks(r)
	c.every(2)
	c.follows(r, end)
}

// every sets the update interval of pages in seconds; 0: never.
func (c *chrome) every(seconds int) {
	c.t.Helper()
	eval[bool](c, fmt.Sprintf(`(() => { localStorage.setItem("every", "%d"); return true; })()`, seconds))
}

// stage creates content for the pages.
func (r *rig) stage() {
	r.db.MustExec("SELECT embedsidecar.set_priority('public.articles', 'high', said_by => 'olga@laptop')")
	r.db.MustExec("SELECT embedsidecar.pause('public.products', said_by => 'cron@db-1')")
	r.db.MustExec("UPDATE products SET description = description || '.' WHERE sku < 'SKU-005'")
	// An hour of charts: a quiet time, a burst, a few failures.
	r.db.MustExec(`INSERT INTO embedsidecar.measure (pipeline_id, minutes, place, began, rows_embedded, rows_reused, rows_failed,
			texts_embedded, tokens, price, backlog, freshness)
		SELECT p.id, 1, (extract(epoch FROM m.began) / 60)::bigint % 128, m.began, m.n, m.n / 9,
			CASE WHEN g % 23 = 7 THEN 2 ELSE 0 END,
			m.n, m.n * 41, m.n * 41 * 2e-7, CASE WHEN g BETWEEN 22 AND 31 THEN (32 - g) * 90 * p.part ELSE 0 END,
			array_fill(0, ARRAY[9]) || ARRAY[m.n / 8, m.n / 3, m.n / 4, m.n / 9, m.n / 20, g % 3, g % 2]::int[]
		FROM (SELECT 0 AS id, 6 AS part UNION ALL
			SELECT pipeline_id, row_number() OVER (ORDER BY pipeline_id) FROM embedsidecar.pipeline) AS p,
			generate_series(0, 62) AS g,
			LATERAL (SELECT date_trunc('minute', now()) - g * interval '1 minute' AS began,
				((40 + 25 * sin(g / 7.0) + (g * 37 % 11)
					+ CASE WHEN g BETWEEN 20 AND 30 THEN 260 ELSE 0 END) * p.part)::int AS n) AS m
		ON CONFLICT (pipeline_id, minutes, place) DO UPDATE SET (began, rows_embedded, rows_reused, rows_failed,
			texts_embedded, tokens, price, backlog, freshness) = ROW (excluded.began, excluded.rows_embedded,
			excluded.rows_reused, excluded.rows_failed, excluded.texts_embedded, excluded.tokens, excluded.price,
			excluded.backlog, excluded.freshness)`)
	r.db.MustExec(`INSERT INTO embedsidecar.spent AS s (pipeline_id, tokens_embedded, texts_embedded)
		SELECT pipeline_id, sum(tokens), sum(texts_embedded) FROM embedsidecar.measure WHERE pipeline_id > 0 GROUP BY 1
		ON CONFLICT (pipeline_id) DO UPDATE SET tokens_embedded = excluded.tokens_embedded,
			texts_embedded = excluded.texts_embedded`)
	testenv.Eventually(r.t, waitTimeout, func() (bool, string) {
		n := testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.task WHERE state = 'todo'")
		return n == 4, fmt.Sprint(n, " wait")
	})
}

// theme chooses a theme, which is kept.
func (c *chrome) theme() {
	c.t.Helper()
	c.open("/help")
	c.do(chromedp.Click(chromedp.CSS(`.side > .who button[value=dark]`)))
	c.until("dark", `document.documentElement?.dataset.theme === "dark" && getComputedStyle(document.documentElement).colorScheme === "dark"`)
	c.accessible("help, dark by choice")
	c.do(chromedp.Click(chromedp.CSS(`.side > .who button[value=system]`)))
	c.until("as the system", `document.documentElement?.dataset.theme === "system"`)
}

// clicks performs actions of a user, each with its expected effect in the database.
func (c *chrome) clicks(r *rig) {
	c.t.Helper()
	of := func(verb string) string { return fmt.Sprintf("main form:has(input[name=do][value=%s])", verb) }
	form := func(verb string) string { return of(verb) + " button" }
	button := func(verb string) step { return chromedp.Click(chromedp.CSS(form(verb))) }
	typed := func(text string) []step {
		return []step{
			chromedp.SendKeys(chromedp.CSS(`input[name=typed]`), text), chromedp.Click(chromedp.CSS(`main form button`)),
		}
	}
	list := func(steps ...step) []step { return steps }
	for _, click := range []struct {
		path  string
		has   string // content of the page, which is at most a second old
		steps []step
		sql   string
		want  int64
	}{
		{"/queue?pipeline=public.products", form("prioritise"), append(list(chromedp.SetValue(chromedp.CSS(of("prioritise")+" select"), "low"), button("prioritise")), typed("4")...), "SELECT count(*) FROM embedsidecar.task WHERE lane = 0 AND state = 'todo'", 4},
		{"/pipelines/public.products", form("resume"), list(button("resume")), "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled", 0},
		{"/pipelines/public.articles", form("pause"), list(button("pause")), "SELECT count(*) FROM embedsidecar.pipeline WHERE NOT enabled", 1},
		{"/pipelines/public.articles", form("priority"), list(chromedp.SetValue(chromedp.CSS(`select[name=priority]`), "urgent"), button("priority")), "SELECT count(*) FROM embedsidecar.pipeline WHERE lane = 3", 1},
		{"/pipelines/public.tickets", form("backfill"), list(button("backfill")), "SELECT count(*) FROM embedsidecar.audit_log WHERE action = 'backfill'", 1},
		{"/row?pipeline=public.articles&key=1", form("requeue"), list(button("requeue")), "SELECT count(*) FROM embedsidecar.task WHERE row_key = '1'", 1},
		{"/row?pipeline=public.articles&key=1", form("cancel"), list(button("cancel")), "SELECT count(*) FROM embedsidecar.task WHERE state = 'cancelled'", 1},
		{"/pipelines/public.articles", form("requeue"), append(list(button("requeue")), typed("1")...), "SELECT count(*) FROM embedsidecar.task WHERE state = 'cancelled'", 0},
		{"/row?pipeline=public.articles&key=2", form("reembed"), list(button("reembed")), "SELECT count(*) FROM embedsidecar.audit_log WHERE action = 'reembed'", 1},
		{"/dead-letters?pipeline=public.tickets", `button[value=discard]`, append(list(chromedp.Click(chromedp.CSS(`input[value="1007"]`)), chromedp.Click(chromedp.CSS(`button[value=discard]`))), typed("1")...), "SELECT count(*) FROM embedsidecar.task WHERE state = 'failed'", 1},
		{"/errors", form("retry"), append(list(button("retry")), typed("1")...), "SELECT count(*) FROM embedsidecar.audit_log WHERE action = 'retry' AND changed = 1", 1},
		{"/", form("pause"), append(list(button("pause")), typed("pause all")...), "SELECT count(*) FROM embedsidecar.installation WHERE enabled", 0},
		{"/", "#live-pipelines " + of("resume")[len("main "):], append(list(chromedp.Click(chromedp.CSS("#live-pipelines "+of("resume")[len("main "):]+" button"))), typed("resume all")...), "SELECT count(*) FROM embedsidecar.installation WHERE enabled", 1},
	} {
		testenv.Eventually(c.t, browserTimeout, func() (bool, string) {
			c.open(click.path)
			return eval[bool](c, fmt.Sprintf("!!document.querySelector(%q)", click.has)), click.path + " has no " + click.has
		})
		c.do(click.steps...)
		testenv.Eventually(c.t, browserTimeout, func() (bool, string) {
			got := testenv.Value[int64](r.db, click.sql)
			return got == click.want, fmt.Sprintf("%s: %s: %d, want %d: %s", click.path, click.sql, got, click.want,
				eval[string](c, here))
		})
		c.until("told of what was done", `document.querySelector("main .notice[role=status]")`)
	}
}

// prioritisesOnAPhone changes the lane of a waiting row on its card.
func (c *chrome) prioritisesOnAPhone(r *rig) {
	c.t.Helper()
	c.as(looks[2], 0)
	c.open("/queue?pipeline=public.products")
	c.do(chromedp.Click(chromedp.CSS(`input[value="SKU-002"]`)),
		chromedp.SetValue(chromedp.CSS(`#live-tasks select[name=priority]`), "urgent"),
		chromedp.Click(chromedp.CSS(`#live-tasks button[value=prioritise]`)))
	c.until("told of what was done", `document.querySelector("main .notice[role=status]")`)
	if n := testenv.Value[int64](r.db, "SELECT count(*) FROM embedsidecar.task WHERE lane = 3 AND row_key = 'SKU-002'"); n != 1 {
		c.t.Errorf("the row that was prioritised: %d, on %s", n, eval[string](c, here))
	}
	c.as(looks[0], 0)
}

// follows watches a page while things happen, and after the server is gone.
func (c *chrome) follows(r *rig, end func()) {
	c.t.Helper()
	c.open("/pipelines/public.tickets")
	c.until("live", `document.querySelector("#pulse")?.dataset.state === "live"`)
	r.db.MustExec("SELECT embedsidecar.pause('public.tickets')")
	c.until("paused without being loaded anew", `document.querySelector("#live-state")?.innerText.includes("Paused")`)
	end()
	c.until("stale", `document.querySelector("#pulse")?.innerText.includes("Stale since")`)
}
