package report

import (
	"fmt"
	"math"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/pipeline/health"
)

// Line is the state of the slot in one line. Names in it are as they are.
func (s *Slot) Line() string {
	return "slot " + s.Name + ": " + s.Word() + ", " + wording.Size(s.LagBytes) + " behind, WAL kept " + s.Kept()
}

// Word says what becomes of the slot.
func (s *Slot) Word() string {
	if s.State == Streamed {
		return s.Reason
	}
	return s.State.Word()
}

// Streamed is the state of a slot that keeps no pipeline from its work.
const Streamed health.Code = "streaming"

// Kept is how much WAL the slot keeps, and how much it may.
func (s *Slot) Kept() string {
	if s.SafeWALBytes == nil {
		return wording.Size(s.RetainedBytes)
	}
	return wording.Size(s.RetainedBytes) + " of " + wording.Size(s.RetainedBytes+max(*s.SafeWALBytes, 0))
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
	if rate := p.scanRate(); rate > 0 {
		word += fmt.Sprintf(", %.0f/s", rate)
	}
	if left := p.scanLeft(); left > 0 {
		word += ", " + wording.Age(left)
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
