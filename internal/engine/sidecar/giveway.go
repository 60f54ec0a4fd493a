package sidecar

import (
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/hostload"
	"github.com/embedsidecar/embedsidecar/replication"
)

// othersAreBusy returns what tells whether others than this sidecar, and what works for it, keep the host busy.
func (s *Sidecar) othersAreBusy() func() bool {
	meter := hostload.New()
	return func() bool {
		batches, asking := int64(0), int64(0)
		s.mu.Lock()
		for _, r := range s.running {
			batches += r.worker.Stats().Busy.Load()
		}
		for _, service := range s.services {
			asking += service.Stats().Asking.Load()
		}
		s.mu.Unlock()
		return meter.Busy(time.Now(), int(max(batches-asking, 0)), asking > 0)
	}
}

// givesWay says that changes are put off for those, once it is worth a word; "": they are not.
func givesWay(stats *replication.Stats) string {
	const worth = 3 * time.Second
	now := time.Now()
	since, is := stats.GivesWay(now)
	if !is || now.Sub(since) < worth {
		return ""
	}
	return "gives way since " + since.UTC().Format(time.RFC3339) + ": others keep all cores of its host busy"
}
