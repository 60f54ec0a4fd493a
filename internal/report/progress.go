package report

import (
	"fmt"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/wording"
)

// Progress is how far something is of which the end is known.
type Progress struct {
	Done, Of int64
	Rate     float64       // rows a second; 0: not known
	Left     time.Duration // about; 0: not known
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
		line += ", about " + wording.Age(p.Left.Seconds()) + " to go"
	}
	return line
}

// Countdown measures from one look to the next how fast what is left becomes less. Its zero value has not looked yet.
type Countdown struct {
	most  int64 // that was left, when it began
	since time.Time
}

// Look says how far it is when so many rows are left. When they become more than ever before, it begins anew.
func (c *Countdown) Look(left int64, now time.Time) Progress {
	if c.since.IsZero() || left > c.most {
		c.most, c.since = left, now
	}
	p := Progress{Done: c.most - left, Of: c.most}
	if took := now.Sub(c.since).Seconds(); took > 0 && p.Done > 0 {
		p.Rate = float64(p.Done) / took
		p.Left = time.Duration(float64(left) / p.Rate * float64(time.Second))
	}
	return p
}

// Of says how far a pipeline is: with the scan of its table, or else with what is open. Nothing is known of one that
// does not work, or has nothing to do.
func (c *Countdown) Of(p *Pipeline, now time.Time) Progress {
	switch {
	case !p.State.Works():
		return Progress{}
	case p.ScanPhase == "rows" && p.ScanExpected > 0:
		return Progress{
			Done: min(p.ScanSeen, p.ScanExpected), Of: p.ScanExpected, Rate: p.ScanRate,
			Left: time.Duration(p.ScanLeft * float64(time.Second)),
		}
	case p.Open() > 0:
		return c.Look(p.Open(), now)
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
