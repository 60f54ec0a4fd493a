package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/embedsidecar/embedsidecar/internal/health"
	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// Line is the state of the slot in one line. Names in it are as they are.
func (s *Slot) Line() string {
	var parts []string
	switch {
	case !s.Exists:
		parts = append(parts, "does not exist")
	case s.Making:
		parts = append(parts, "being made by "+s.Holder)
	case s.WALStatus == "lost":
		parts = append(parts, "lost")
	case s.Active && s.Holder != "":
		parts = append(parts, "streamed by "+s.Holder)
	case s.Active:
		parts = append(parts, "active")
	default:
		parts = append(parts, "nobody streams")
	}
	parts = append(parts, wording.Size(s.LagBytes)+" behind")
	kept := "WAL kept " + wording.Size(s.RetainedBytes)
	if s.SafeWALBytes != nil {
		kept += " of " + wording.Size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
	}
	parts = append(parts, kept)
	return "slot " + s.Name + ": " + strings.Join(parts, ", ")
}

// Word is the state of the pipeline, with how far it is.
func (p *Pipeline) Word() string {
	word := p.State.Word()
	switch {
	case p.State != health.Backfill && p.State != health.Comparing, p.ScanExpected <= 0:
		return word
	case p.ScanPhase == "orphans":
		return word + " 100%"
	}
	//nolint:mnd // percent
	word += fmt.Sprintf(" %.0f%%", math.Floor(100*min(1, float64(p.ScanSeen)/float64(p.ScanExpected))))
	if p.ScanRate > 0 {
		word += fmt.Sprintf(", %.0f/s", p.ScanRate)
	}
	if p.ScanLeft > 0 {
		word += ", " + wording.Age(p.ScanLeft)
	}
	return word
}

// AtWork reports whether nothing keeps the pipeline from its work: it has none, or rows wait that are not only to be
// tried again.
func (p *Pipeline) AtWork() bool {
	return p.State == health.UpToDate || p.State == health.Working && p.Open() > p.Retrying
}

// Line is the row that failed in one line.
func (f *FailedRow) Line() string {
	line := fmt.Sprintf("%s: row %s: %s %s: %s (%s ago", f.Pipeline, f.Key, f.Class, f.Code, f.Message,
		wording.Age(f.AgeSeconds))
	if f.NextTrySeconds != nil {
		return line + ", next try " + f.NextTry() + ")"
	}
	return line + ")"
}

// NextTry is when the row is tried again by itself.
func (f *FailedRow) NextTry() string {
	if f.NextTrySeconds == nil {
		return "never"
	}
	return "in " + wording.Age(*f.NextTrySeconds)
}
