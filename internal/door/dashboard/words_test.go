package dashboard

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/speed"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/door/admin"
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

// Whatever there is to draw, a chart is drawn, and says in words what it shows.
func TestCharts(t *testing.T) {
	for _, values := range [][]float64{nil, {0}, {1}, {0, 0}, {5, 1, 9e18}, {math.MaxFloat64, 1}} {
		got := string(sparkline(values, `now "5" <b>`))
		if strings.Contains(got, "NaN") || strings.Contains(got, "Inf") || strings.Contains(got, "<b>") ||
			!strings.Contains(got, `role="img" aria-label="now &#34;5&#34; &lt;b&gt;"`) {
			t.Errorf("%v: %s", values, got)
		}
	}
	for part, want := range map[float64]string{-1: `width="0.00"`, 0.5: `width="50.00"`, 7: `width="100.00"`} {
		if got := string(bar(part, "good", "x")); !strings.Contains(got, want) {
			t.Errorf("%v: %s", part, got)
		}
	}
	if got := string(columns([]column{{1e12, 1}, {}, {0, 1}}, "x")); strings.Count(got, "<rect") != 3 {
		t.Errorf("columns: %s", got)
	}
}

// The sentence is about who needs somebody most.
func TestSentence(t *testing.T) {
	of := func(states ...health.Code) string {
		var d observe.Database
		for _, s := range states {
			d.Pipelines = append(d.Pipelines, observe.Pipeline{Pipeline: report.Pipeline{
				Name: string(s), State: s, Reason: "because", Pending: 2, NeedsAct: s != health.UpToDate && s != health.Working,
			}})
		}
		s := sentenceOf(&d)
		return s.Tone + " " + s.Text
	}
	for want, got := range map[string]string{
		"warn No pipeline is set up yet.":                                  of(),
		"good All is well.":                                                of(health.UpToDate, health.UpToDate),
		"busy All is well, and there is work.":                             of(health.UpToDate, health.Working),
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

// What ends by itself, or never does, is not well for as long as somebody should look.
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
			"warn docs: rows fail and are tried again. 2 rows failed and will be tried again.",
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
			"busy All is well, and there is work. docs: because.",
		},
		"old": {
			report.Pipeline{State: health.Working, Pending: 5, OldestSeconds: seconds(1200)},
			"warn docs: a row has waited for 20m0s. Because.",
		},
		"young": {
			report.Pipeline{State: health.Working, Pending: 5, OldestSeconds: seconds(12)},
			"busy All is well, and there is work. 5 rows wait or are being embedded.",
		},
		"not looked at": {
			report.Pipeline{State: health.UpToDate, Rows: 2000, Known: 1939},
			"busy Every row that is known is done. docs: 61 rows not looked at yet.",
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

// Who sees some pipelines learns nothing of how others stood; nobody's look makes the list longer than it may be.
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
		"1,230/s, at least 1m40s to go": {many, at(health.Working, 9, 30, 2)},
		"":                              {at(health.Working, 7, 0, 0), at(health.Paused, 9, 3, 0)},
		"0.5/s":                         {at(health.UpToDate, 0, 0.5, 0)},
		"1,230/s, about 1m40s to go":    {at(health.Working, 9, 1200, 100), at(health.Working, 9, 30, 2), at(health.Paused, 9, 5, 0)},
		"20/s":                          {at(health.Working, 9, 20, 2), at(health.Working, 9, 0, 0)}, // nobody knows when the other ends
	} {
		if got := together(list).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestBeats(t *testing.T) {
	var b beats
	now := time.Now()
	for i := range 3 * mostBeats {
		list := b.add(&admin.Status{At: now.Add(time.Duration(i) * beatEvery)}, true)
		if len(list) > mostBeats {
			t.Fatalf("%d are kept", len(list))
		}
	}
	if list := b.add(&admin.Status{At: now}, false); len(list) != 1 {
		t.Errorf("who sees some pipelines alone sees %d looks of others", len(list))
	}
}
