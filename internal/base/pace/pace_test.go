package pace

import (
	"testing"
	"time"
)

// Consecutive small batches use their share of the time at most, and one after a pause starts immediately.
func TestPace(t *testing.T) {
	t.Parallel()
	keeps(t, &Pace{Share: 0.2}, 0.2)
	keeps(t, &Pace{Share: 0.1}, 0.1)
}

func keeps(t *testing.T, p *Pace, share float64) {
	t.Helper()
	const batch, most = 5 * time.Millisecond, 50 * time.Millisecond
	began := time.Unix(0, 0)
	now, n := began, 0
	for ; now.Sub(began) < 10*time.Second; n++ {
		for rest := p.Rest(now, most); rest > 0; rest = p.Rest(now, most) {
			now = now.Add(rest)
		}
		now = now.Add(batch)
		p.Spend(batch, now)
	}
	if took := float64(n) * batch.Seconds() / now.Sub(began).Seconds(); took < share || took > 1.1*share {
		t.Errorf("%d batches take %.2f of the time, want %.2f", n, took, share)
	}
	p.Spend(time.Minute, now)
	if rest := p.Rest(now, most); rest != most {
		t.Errorf("it rests for %s, want %s at most", rest, most)
	}
	if rest := p.Rest(now.Add(time.Hour), most); rest > 0 {
		t.Errorf("it rests for %s after a quiet hour", rest)
	}
}
