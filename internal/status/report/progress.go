package report

import (
	"fmt"
	"math"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Progress is the progress of a job with a known size.
type Progress struct {
	Done, Of int64
	Rate     float64       // rows per second; 0: unknown
	Left     time.Duration // approximate; 0: unknown
	AtLeast  bool          // more is left than was counted, so Left is a lower bound
}

// String formats it on one line for any terminal.
func (p Progress) String() string {
	if p.Of == 0 {
		return ""
	}
	part := min(1, float64(p.Done)/float64(p.Of))
	line := fmt.Sprintf("%s %s  %d of %s", wording.Bar(part), wording.Percent(part), p.Done, wording.Count(p.Of, "row"))
	if p.Rate > 0 {
		line += fmt.Sprintf(", %.0f/s", p.Rate)
	}
	if p.Left > 0 {
		line += ", " + ToGo(p.Left.Seconds(), p.AtLeast)
	}
	return line
}

// ToGo formats the remaining time; atLeast: it is a lower bound, since more is left than was counted.
func ToGo(seconds float64, atLeast bool) string {
	if atLeast {
		return "at least " + wording.Age(seconds) + " to go"
	}
	return "about " + wording.Age(seconds) + " to go"
}

// Countdown measures how fast the number of rows left falls between reads. Its zero value has no read yet.
type Countdown struct {
	begun           bool
	most            int64 // rows left at the beginning
	first, last     int64 // rows left after the first finished batch, and after the last
	firstAt, lastAt time.Time
	steps           int // finished batches, as far as seen
}

// Look returns the progress for the rows left now. If there are more than ever before, it starts again.
//
// Rows finish in batches, so the rate is measured from the end of one batch to the end of another. The batch in
// progress at the beginning is only partly seen and does not count. The rate is cumulative, and falls when batches
// stop.
func (c *Countdown) Look(left int64, now time.Time) Progress {
	if !c.begun || left > c.most {
		*c = Countdown{begun: true, most: left, last: left}
	}
	if left != c.last {
		if c.steps++; c.steps == 1 {
			c.first, c.firstAt = left, now
		}
		c.last, c.lastAt = left, now
	}
	p := Progress{Done: c.most - left, Of: c.most}
	if c.steps > 1 && c.first > c.last && c.lastAt.After(c.firstAt) {
		took := c.lastAt.Sub(c.firstAt)
		batch := took / time.Duration(c.steps-1)
		took = max(took, now.Sub(c.firstAt)-batch)
		p.Rate = float64(c.first-c.last) / took.Seconds()
		p.Left = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
	return p
}

// left estimates the seconds until nothing is left to do; 0: unknown, or nothing is left.
func (p *Pipeline) left() float64 {
	switch {
	case !p.Works:
		return 0
	case p.scans():
		return p.scanLeft()
	case p.Speed.Rows > 0:
		return math.Round(float64(p.Open()) / p.Speed.Rows)
	}
	return 0
}

// scanRate is the number of rows that a scan processes per second: as sidecars report now, or else since it began.
func (p *Pipeline) scanRate() float64 {
	if p.Speed.Rows > 0 {
		return p.Speed.Rows
	}
	return p.ScanRate
}

// scanLeft estimates the seconds until the scan ends; 0: unknown.
func (p *Pipeline) scanLeft() float64 {
	if left := p.ScanExpected - p.ScanSeen; p.Speed.Rows > 0 && left > 0 {
		return math.Round(float64(left) / p.Speed.Rows)
	}
	return p.ScanLeft
}

// scans reports whether the scan of its table is reading rows, so that its progress is known.
func (p *Pipeline) scans() bool { return p.ScanPhase == "rows" && p.ScanExpected > 0 }

// SpeedLine describes on one line the speed of the pipeline, its estimated end, and the speed of its embedder; "" if
// nothing was done recently.
func (p *Pipeline) SpeedLine() string {
	s := &p.Speed
	if s.Rows == 0 && s.Calls == 0 {
		return ""
	}
	line := p.Name + ": " + wording.Rate(s.Rows, "row")
	if p.Works && p.Open() > 0 {
		line += ", " + wording.Count(p.Open(), "row") + " to embed"
		if p.Capped() {
			line += " or more"
		}
		if p.SecondsLeft > 0 && !p.scans() {
			line += ", " + ToGo(p.SecondsLeft, p.AtLeast)
		}
	}
	if s.Calls > 0 {
		line += fmt.Sprintf("; embedder: %s, %.0f ms a call", wording.Rate(s.Texts, "text"), s.CallMilliseconds)
	}
	return line
}

// Capped reports whether more rows wait than were counted.
func (p *Pipeline) Capped() bool { return max(p.Pending, p.Retrying) >= taskCap }

// Of returns the progress of a pipeline: that of its scan, or else of the open rows. It is zero for a pipeline that
// does not work or has nothing to do.
func (c *Countdown) Of(p *Pipeline, now time.Time) Progress {
	switch {
	case !p.Works:
		return Progress{}
	case p.scans():
		return Progress{
			Done: min(p.ScanSeen, p.ScanExpected), Of: p.ScanExpected, Rate: p.scanRate(),
			Left: time.Duration(p.scanLeft() * float64(time.Second)),
		}
	case p.Open() > 0:
		bar := c.Look(p.Open(), now)
		bar.AtLeast = p.Capped()
		if p.Speed.Rows > 0 { // reported by a sidecar
			bar.Rate, bar.Left = p.Speed.Rows, time.Duration(p.SecondsLeft*float64(time.Second))
		}
		return bar
	}
	*c = Countdown{}
	return Progress{}
}

// Left estimates the rows still to be embedded: the open ones and, during a scan, those that it has not seen.
func (p *Pipeline) Left() int64 {
	if p.ScanPhase != "rows" && p.ScanPhase != "waiting" {
		return p.Open()
	}
	return p.Open() + max(0, max(p.ScanExpected, p.Rows)-p.ScanSeen)
}
