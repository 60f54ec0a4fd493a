package dashboard

import (
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/admin"
)

const (
	mostBeats = 90
	beatEvery = time.Second
)

// beats are how things stood while somebody looked: that is what sparklines show.
type beats struct {
	mu   sync.Mutex
	list []beat
}

// beat is what is kept of one moment.
type beat struct {
	At           time.Time
	Lag, Kept    int64
	Oldest       float64
	Open, Failed int64
}

// add keeps how things stand, and returns it with those before, the oldest first. Who sees some pipelines alone gets
// no others.
func (b *beats) add(now *admin.Status, whole bool) []beat {
	next := beatOf(now)
	if !whole {
		return []beat{next}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.list); n > 0 && next.At.Sub(b.list[n-1].At) < beatEvery {
		b.list = b.list[:n-1]
	}
	b.list = append(b.list, next)
	if len(b.list) > mostBeats {
		b.list = b.list[len(b.list)-mostBeats:]
	}
	return append([]beat{}, b.list...)
}

func beatOf(now *admin.Status) beat {
	b := beat{At: now.At}
	for i := range now.Slots {
		b.Lag, b.Kept = b.Lag+now.Slots[i].LagBytes, b.Kept+now.Slots[i].RetainedBytes
	}
	for i := range now.Pipelines {
		p := &now.Pipelines[i]
		b.Open, b.Failed = b.Open+p.Open(), b.Failed+p.Failed
		if p.OldestSeconds != nil {
			b.Oldest = max(b.Oldest, *p.OldestSeconds)
		}
	}
	return b
}

// line is what a sparkline draws of them.
func line(list []beat, of func(beat) float64) []float64 {
	values := make([]float64, len(list))
	for i, b := range list {
		values[i] = of(b)
	}
	return values
}
