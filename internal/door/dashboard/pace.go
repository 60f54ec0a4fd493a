package dashboard

import (
	"math"
	"strconv"

	"github.com/embedsidecar/embedsidecar/internal/status/observe"
)

// pace is how fast something is done, and in about how long all of it is; 0: that is not known.
type pace struct {
	Rate  float64 // rows a second
	Left  float64 // seconds
	Least bool    // it takes longer: not all rows that wait were counted
}

// paceOf is how fast rows of a pipeline are embedded, by what its sidecars say.
func paceOf(p *observe.Pipeline) pace {
	if !p.Works {
		return pace{}
	}
	return pace{p.Speed.Rows, p.SecondsLeft, p.AtLeast}
}

// together is how fast rows of all pipelines are embedded, and when the last of them is.
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

// String says it in a few words; "": nothing is known.
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

// ToGo says how long it takes; "": that is not known.
func (p pace) ToGo() string {
	switch {
	case p.Left <= 0:
		return ""
	case p.Least:
		return "at least " + spoken(p.Left) + " to go"
	}
	return "about " + spoken(p.Left) + " to go"
}

// rateOf writes rows a second.
func rateOf(rate float64) string {
	const few = 10 // of which a part of one counts
	if rate < few {
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return number(int64(math.Round(rate))) + "/s"
}
