package dashboard

import (
	"math"
	"strconv"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// pace is the speed of some work, and the approximate time until its end; 0: unknown.
type pace struct {
	Rate  float64 // rows per second
	Left  float64 // seconds
	Least bool    // Left is a lower bound: not all waiting rows were counted
}

// paceOf returns the speed of a pipeline, as reported by its sidecars.
func paceOf(p *observe.Pipeline) pace {
	if !p.Works {
		return pace{}
	}
	return pace{p.Speed.Rows, p.SecondsLeft, p.AtLeast}
}

// together returns the speed of all pipelines, and the time until the last one ends.
func together(list []observe.Pipeline) (all pace) {
	known := true
	for i := range list {
		one := paceOf(&list[i])
		all = pace{all.Rate + one.Rate, max(all.Left, one.Left), all.Least || one.Least}
		known = known && (one.Left > 0 || !list[i].Works || list[i].Open() == 0)
	}
	if !known {
		all.Left = 0
	}
	return all
}

// String formats it in a few words; "": unknown.
func (p pace) String() string {
	if p.Rate <= 0 {
		return ""
	}
	said := rateOf(p.Rate)
	if left := p.ToGo(); left != "" {
		said += ", " + left
	}
	return said
}

// ToGo formats the remaining time; "": unknown.
func (p pace) ToGo() string {
	switch {
	case p.Left <= 0:
		return ""
	case p.Least:
		return "at least " + spoken(p.Left) + " to go"
	}
	return "about " + spoken(p.Left) + " to go"
}

// rateOf formats rows per second.
func rateOf(rate float64) string {
	const few = 10 // below that, a decimal counts
	if rate < few {
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return number(int64(math.Round(rate))) + "/s"
}

// backfill is the progress of a pipeline's scan, and what is left to embed.
type backfill struct {
	observe.Pipeline

	Tone, Phase string
	Does        string // the phase of the scan, if Phase is the state that blocks the pipeline
	Seen        string
	Part        float64 // compared share of the rows
	Pace        pace
}

// backfillOf returns the progress of a scan. A row is done when it was compared and, if it differed, embedded.
func backfillOf(p *observe.Pipeline) backfill {
	const almost = 0.99 // for a table that is larger than expected
	b := backfill{Pipeline: *p, Tone: "busy", Seen: number(p.ScanSeen) + " compared", Pace: paceOf(p)}
	if p.ScanExpected > 0 {
		b.Part = min(almost, float64(p.ScanSeen)/float64(p.ScanExpected))
	}
	switch p.ScanPhase {
	case "waiting":
		b.Phase, b.Seen, b.Part = "not begun", "none yet", 0
	case "rows":
		b.Phase, b.Seen = "compares and embeds rows", number(p.ScanSeen)+" of about "+number(max(p.ScanSeen, p.ScanExpected))
	case "orphans":
		b.Phase, b.Part = "looks for vectors without a row", 1
	default:
		b.Tone, b.Phase, b.Part = "good", "done", 1
		if p.Open() > 0 {
			b.Tone, b.Phase = "busy", "compared, not yet embedded"
		}
	}
	if b.Phase != "done" && !p.Works {
		b.Tone, b.Phase, b.Does = toneOf(p), p.State.Word(), b.Phase
	}
	return b
}
