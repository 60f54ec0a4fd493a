package dashboard

import (
	"net/http"

	"github.com/embedsidecar/embedsidecar/internal/admin"
	"github.com/embedsidecar/embedsidecar/internal/node/observe"
	"github.com/embedsidecar/embedsidecar/internal/report"
)

// backfill is how far the comparison of all rows of a pipeline is, and what is left to embed of it.
type backfill struct {
	observe.Pipeline

	Tone, Phase string
	Does        string // what the scan itself does, where Phase is what keeps the pipeline from it
	Seen        string
	Part        float64 // of the rows, that it has compared
	Pace        report.Progress
}

func (d *Dashboard) backfills(r *http.Request) (view, error) {
	state, err := d.status(r.Context())
	if err != nil {
		return view{}, err
	}
	list := make([]backfill, len(state.Pipelines))
	for i := range list {
		list[i] = backfillOf(&state.Pipelines[i])
		list[i].Pace = state.Progress[list[i].Name]
	}
	return view{page: "backfills", title: "Backfills", live: true, data: map[string]any{"Scans": list}}, nil
}

// backfillOf says how far one is. To have compared a row is not yet to have embedded it, and before a scan begins it
// has compared none.
func backfillOf(p *observe.Pipeline) backfill {
	const almost = 0.99 // of a table that is larger than was expected
	b := backfill{Pipeline: *p, Tone: "busy", Seen: number(p.ScanSeen) + " compared"}
	if p.ScanExpected > 0 {
		b.Part = min(almost, float64(p.ScanSeen)/float64(p.ScanExpected))
	}
	switch p.ScanPhase {
	case "waiting":
		b.Phase, b.Seen, b.Part = "not begun", "none yet", 0
	case "rows":
		b.Phase, b.Seen = "compares rows", number(p.ScanSeen)+" of about "+number(max(p.ScanSeen, p.ScanExpected))
	case "orphans":
		b.Phase, b.Part = "looks for vectors without a row", 1
	default:
		b.Tone, b.Phase, b.Part = "good", "done", 1
		if p.Open() > 0 {
			b.Tone, b.Phase = "busy", "compared, not yet embedded"
		}
	}
	if b.Phase != "done" && !p.State.Works() {
		b.Tone, b.Phase, b.Does = toneOf(p.State), p.State.Word(), b.Phase
	}
	return b
}

// together is how fast what is left of all pipelines becomes less, and when the last of them ends.
func together(state *admin.Status) (all report.Progress) {
	known := true
	for i := range state.Pipelines {
		p := &state.Pipelines[i]
		pace := state.Progress[p.Name]
		all.Rate, all.Left = all.Rate+pace.Rate, max(all.Left, pace.Left)
		known = known && (pace.Left > 0 || !p.State.Works() || p.Open() == 0)
	}
	if !known {
		all.Left = 0
	}
	return all
}
