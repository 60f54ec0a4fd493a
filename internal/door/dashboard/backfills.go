package dashboard

import (
	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

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
