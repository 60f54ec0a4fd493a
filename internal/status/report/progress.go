package report

import (
	"fmt"
	"math"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// Progress is how far something is of which the end is known.
type Progress struct {
	Done, Of int64
	Rate     float64       // rows a second; 0: not known
	Left     time.Duration // about; 0: not known
	AtLeast  bool          // more is to be done than was counted: it takes longer
}

// String writes it in one line, for any terminal.
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

// ToGo words when something ends; atLeast: it takes longer, as more is to be done than was counted.
func ToGo(seconds float64, atLeast bool) string {
	if atLeast {
		return "at least " + wording.Age(seconds) + " to go"
	}
	return "about " + wording.Age(seconds) + " to go"
}

// Countdown measures from one look to the next how fast what is left becomes less. Its zero value has not looked yet.
type Countdown struct {
	begun           bool
	most            int64 // that was left, when it began
	first, last     int64 // that was left after the first batch that ended, and after the last
	firstAt, lastAt time.Time
	steps           int // batches that ended, or as many as were seen to
}

// Look says how far it is when so many rows are left. When they become more than ever before, it begins again.
//
// Rows end a batch at a time, so the rate is that from the end of one batch to the end of another: a part of a batch,
// as there is one at the beginning, would be taken for a whole. It is cumulative, and falls when batches stay away.
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

// left is in about how many seconds nothing is left to do; 0: that is not known, or nothing is.
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

// scanRate is how many rows of a scan are done in a second: as sidecars say of late, or else since it began.
func (p *Pipeline) scanRate() float64 {
	if p.Speed.Rows > 0 {
		return p.Speed.Rows
	}
	return p.ScanRate
}

// scanLeft is in about how many seconds its rows are done; 0: that is not known.
func (p *Pipeline) scanLeft() float64 {
	if left := p.ScanExpected - p.ScanSeen; p.Speed.Rows > 0 && left > 0 {
		return math.Round(float64(left) / p.Speed.Rows)
	}
	return p.ScanLeft
}

// scans reports whether the scan of its table reads rows, so that it is known how far that is.
func (p *Pipeline) scans() bool { return p.ScanPhase == "rows" && p.ScanExpected > 0 }

// SpeedLine says in one line how fast the pipeline is worked, when that ends, and how fast its embedder is; "" where
// nothing was done of late.
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

// Of says how far a pipeline is: with the scan of its table, or else with what is open. Nothing is known of one that
// does not work, or has nothing to do.
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
		if p.Speed.Rows > 0 { // told by anyone who does it
			bar.Rate, bar.Left = p.Speed.Rows, time.Duration(p.SecondsLeft*float64(time.Second))
		}
		return bar
	}
	*c = Countdown{}
	return Progress{}
}

// Left is about how many rows are to be embedded still: those that are open, and during a scan those that it has not
// seen.
func (p *Pipeline) Left() int64 {
	if p.ScanPhase != "rows" && p.ScanPhase != "waiting" {
		return p.Open()
	}
	return p.Open() + max(0, max(p.ScanExpected, p.Rows)-p.ScanSeen)
}
