package dashboard

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
	"github.com/embedsidecar/embedsidecar/internal/status/report"
)

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", math.MaxInt64: "9,223,372,036,854,775,807",
	} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %s, want %s", n, got, want)
		}
	}
}

// A chart can be drawn for any data, with a text alternative and a table of its figures.
func TestCharts(t *testing.T) {
	for part, want := range map[float64]string{-1: `width="0.00"`, 0.5: `width="50.00"`, 7: `width="100.00"`} {
		if got := string(bar(part, "good", "x")); !strings.Contains(got, want) {
			t.Errorf("%v: %s", part, got)
		}
	}
	at := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for _, values := range [][]*float64{
		nil,
		{nil},
		{new(0.0)},
		{new(1.0)},
		{nil, new(2.0), nil, new(3.0), new(4.0)},
		{new(0.0), new(0.0)},
		{new(1e18), new(1e-9), nil},
		{new(0.35), new(36000.0)},
	} {
		var read report.Past
		for i, v := range values {
			p := report.Point{At: at.Add(time.Duration(i) * 2 * time.Hour)}
			p.P50, p.P99 = v, v
			if v != nil {
				p.Rate, p.Price, p.Failed = *v, *v, 7
				read.Total.Price += *v
			}
			read.Points = append(read.Points, p)
		}
		drawn := pastOf(read, "/")
		for i := range drawn.Charts {
			c := &drawn.Charts[i]
			got := string(c.Draw())
			if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") || !strings.Contains(got, "</desc>") ||
				strings.Count(got, `class="grid"`) < 2 || strings.Count(got, `class="line`) != len(c.Lines) {
				t.Errorf("%s of %d values: %s", c.Title, len(values), got)
			}
		}
		if len(drawn.Rows) != len(values) || len(values) > 0 && len(drawn.Rows[0]) != len(drawn.Columns)+1 {
			t.Errorf("%v and %v of %d values", drawn.Columns, drawn.Rows, len(values))
		}
	}
	drawn := pastOf(report.Past{Points: make([]report.Point, 3)}, "/")
	if len(drawn.Charts) != 5 || len(drawn.Columns) != 6 {
		t.Errorf("without a price there are %d charts and the columns %v", len(drawn.Charts), drawn.Columns)
	}
}

func TestFigures(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0 s", 0.0214: "21 ms", 1.26: "1.3 s", 12: "12 s", 60: "1 min", 485.9: "8 min 6 s", 3600: "1 h",
		12000: "3 h 20 min", 3 * 86400: "3 days", 200000: "2 days 8 h",
	} {
		if got := spoken(seconds); got != want {
			t.Errorf("%g s: %q, want %q", seconds, got, want)
		}
	}
	for v, want := range map[float64]string{
		0: "0", 0.051: "0.05", 3.24: "3.2", 940: "940", 9500: "9500", 12500: "12.5k", 3e6: "3M", 3.1e7: "31M",
	} {
		if got := short(v); got != want {
			t.Errorf("%g: %q, want %q", v, got, want)
		}
	}
	if got := money(0.00042) + money(12.5) + money(0); got != "0.0004212.500.00" {
		t.Errorf("%q", got)
	}
}

// The sentence is about the most urgent pipeline.
func TestSentence(t *testing.T) {
	of := func(states ...health.Code) string {
		var d observe.Database
		for _, s := range states {
			d.Pipelines = append(d.Pipelines, observe.Pipeline{Pipeline: report.Pipeline{
				Name: string(s), State: s, Reason: "because", Pending: 2, NeedsAct: !slices.Contains([]health.Code{health.UpToDate, health.Working, health.BudgetSpent}, s),
			}})
		}
		s := sentenceOf(&d)
		return s.Tone + " " + s.Text
	}
	for want, got := range map[string]string{
		"warn No pipeline is set up yet.":                                  of(),
		"good All is well.":                                                of(health.UpToDate, health.UpToDate),
		"busy All is well; work is in progress.":                           of(health.UpToDate, health.Working),
		"busy budget_spent: budget spent.":                                 of(health.Working, health.BudgetSpent),
		"warn paused: paused. The others are well.":                        of(health.UpToDate, health.Paused),
		"bad slot_lost: slot lost.":                                        of(health.Paused, health.SlotLost, health.UpToDate),
		"bad 2 of 3 pipelines need attention. First slot_lost: slot lost.": of(health.UpToDate, health.SlotLost, health.PluginDown),
		"bad plugin_down: plugin down.":                                    of(health.PluginDown),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The manual shows a state in the color of a pipeline in that state.
func TestToneOfCode(t *testing.T) {
	for tone, codes := range map[string][]health.Code{
		"good": {health.UpToDate},
		"warn": {health.Paused, health.Disabled, health.RowsFailed, health.RowsCancelled},
		"busy": {
			health.SlotWaiting, health.OutsideHours, health.BudgetSpent, health.Unacknowledged, health.ScanWaiting,
			health.Backfill, health.Working,
		},
		"bad": {health.Copied, health.Missing, health.SlotLost, health.NoSidecar, health.PluginDown, health.Failing},
	} {
		for _, c := range codes {
			if got := toneOfCode(c); got != tone {
				t.Errorf("%s is %s, want %s", c, got, tone)
			}
		}
	}
}

// A state that should end by itself is reported if it lasts too long.
func TestSentence_NotWell(t *testing.T) {
	seconds := func(f float64) *float64 { return &f }
	by := func(age *float64) []database.Blocker {
		return []database.Blocker{{PID: 7, Role: "app", Database: "shop", AgeSeconds: age}}
	}
	for name, c := range map[string]struct {
		of   report.Pipeline
		want string
	}{
		"retrying": {
			report.Pipeline{State: health.Working, Pending: 5, Retrying: 2},
			"warn docs: rows fail and are retried. 2 rows failed and will be retried.",
		},
		"blocked": {
			report.Pipeline{State: health.ScanWaiting, WaitsFor: by(seconds(36000))},
			"warn docs: scan waiting. Because.",
		},
		"blocked, nobody knows how long": {
			report.Pipeline{State: health.ScanWaiting, WaitsFor: by(nil)}, "warn docs: scan waiting. Because.",
		},
		"blocked for a moment": {
			report.Pipeline{State: health.ScanWaiting, WaitsFor: by(seconds(2))},
			"busy All is well; work is in progress. docs: because.",
		},
		"old": {
			report.Pipeline{State: health.Working, Pending: 5, OldestSeconds: seconds(1200)},
			"warn docs: a row has waited for 20 min. Because.",
		},
		"young": {
			report.Pipeline{State: health.Working, Pending: 5, OldestSeconds: seconds(12)},
			"busy All is well; work is in progress. 5 rows wait or are being embedded.",
		},
		"not looked at": {
			report.Pipeline{State: health.UpToDate, Rows: 2000, Known: 1939},
			"busy Every known row is done. docs: 61 rows not processed yet.",
		},
	} {
		c.of.Name, c.of.Reason = "docs", "because"
		s := sentenceOf(&observe.Database{Pipelines: []observe.Pipeline{{Pipeline: c.of}}})
		if got := s.Tone + " " + s.Text + " " + s.Detail; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	making := observe.Database{
		Pipelines: []observe.Pipeline{{Pipeline: report.Pipeline{
			Name: "docs", Slot: "s", State: health.SlotWaiting, WaitsFor: by(seconds(90)),
		}}},
	}
	if s := sentenceOf(&making); s.Tone != "warn" {
		t.Errorf("the making of a slot waits for long: %+v", s)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	at := func(state health.Code, open int64, rate, left float64) observe.Pipeline {
		return observe.Pipeline{Pipeline: report.Pipeline{
			State: state, Works: state != health.Paused, Pending: open, Speed: speed.Speed{Rows: rate}, SecondsLeft: left,
		}}
	}
	many := at(health.Working, 100_000, 1200, 100)
	many.AtLeast = true
	for want, list := range map[string][]observe.Pipeline{
		"1,230/s, at least 1 min 40 s to go": {many, at(health.Working, 9, 30, 2)},
		"":                                   {at(health.Working, 7, 0, 0), at(health.Paused, 9, 3, 0)},
		"0.5/s":                              {at(health.UpToDate, 0, 0.5, 0)},
		"1,230/s, about 1 min 40 s to go":    {at(health.Working, 9, 1200, 100), at(health.Working, 9, 30, 2), at(health.Paused, 9, 5, 0)},
		"20/s":                               {at(health.Working, 9, 20, 2), at(health.Working, 9, 0, 0)}, // the other's end is unknown
	} {
		if got := together(list).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Words of a query are marked at the beginnings of words, and no text is lost, whatever both contain.
func TestMarked(t *testing.T) {
	for question, want := range map[string]string{
		"reset my PASSWORD":  "[Reset] a forgotten [password]; passwórd, xpassword, [passwords].",
		"":                   "Reset a forgotten password; passwórd, xpassword, passwords.",
		".* (a|b) [x":        "Reset a forgotten password; passwórd, xpassword, passwords.",
		"passwórd":           "Reset a forgotten password; [passwórd], xpassword, passwords.",
		"\x00\xff forgotten": "Reset a [forgotten] password; passwórd, xpassword, passwords.",
	} {
		var got strings.Builder
		for _, p := range marked(wordsOf(question), "Reset a forgotten password; passwórd, xpassword, passwords.") {
			if p.Asked {
				got.WriteString("[" + p.Text + "]")
			} else {
				got.WriteString(p.Text)
			}
		}
		if got.String() != want {
			t.Errorf("%q: %s, want %s", question, got.String(), want)
		}
	}
	if got := valueOf([]byte(`"` + strings.Repeat("é", 400) + `"`)); got != strings.Repeat("é", 300)+"…" {
		t.Errorf("a long value is %s", got)
	}
	if got := valueOf([]byte(`{"a": 1}`)) + valueOf(nil); got != `{"a": 1}` {
		t.Errorf("%q", got)
	}
}

// The snippets are valid whatever names and queries contain.
func TestSnippets(t *testing.T) {
	list := snippets([]string{"it's/a \"b\""}, "don't $(x)\n\\", 7, true)
	for i, want := range []string{
		"SELECT * FROM embedsidecar.search('it''s/a \"b\"', 'don''t $(x)\n\\', 7);",
		`("it's/a \"b\"", "don't $(x)\n\\", 7)`,
		`-d '{"text":"don'\''t $(x)\n\\","k":7,"hybrid":true}'`,
	} {
		if !strings.Contains(list[i].Code, want) {
			t.Errorf("%s: %s\nwant %s", list[i].Name, list[i].Code, want)
		}
	}
	if want := "/v1/pipelines/it%27s%2Fa%20%22b%22/search"; !strings.HasSuffix(list[2].Code, want) {
		t.Errorf("%s, want %s", list[2].Code, want)
	}
	list = snippets([]string{"it's", "b"}, "x", 7, false)
	for i, want := range []string{
		"embedsidecar.search_across(ARRAY['it''s', 'b'], 'x', 7);", `(["it's", "b"], "x", 7)`,
		`-d '{"pipelines":["it'\''s","b"],"text":"x","k":7}'`,
	} {
		if !strings.Contains(list[i].Code, want) {
			t.Errorf("%s: %s\nwant %s", list[i].Name, list[i].Code, want)
		}
	}
}

// The menu has one entry for each page, or for all tabs of one.
func TestNav(t *testing.T) {
	for here, want := range map[string]string{
		"/": "Overview ", "/pipelines/a": "Pipelines ", "/errors": "Queue Errors", "/row": "Search One row",
		"/config": "System Settings", "/nowhere": " ",
	} {
		menu, tabs := navFor(here)
		entry, tab := "", ""
		for i := range menu {
			if menu[i].Current {
				entry += menu[i].Name
			}
		}
		for i := range tabs {
			if tabs[i].Current {
				tab += tabs[i].Name
			}
		}
		if got := entry + " " + tab; got != want || len(menu) > 7 {
			t.Errorf("%s: %q of %d, want %q", here, got, len(menu), want)
		}
	}
}
