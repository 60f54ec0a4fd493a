package sidecar

import (
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
)

// done counts rows that workers finished, and rows that became dead letters.
type done struct{ succeeded, failed int64 }

func (d *done) add(o done) { d.succeeded, d.failed = d.succeeded+o.succeeded, d.failed+o.failed }

// day counts the last 24 hours by hour.
type day struct {
	hours [24]done
	hour  int64     // current hour, counted from began
	began time.Time // with a monotonic clock
	last  time.Time // end of the last batch; zero: none
}

func (d *day) add(o done, now time.Time) {
	if d.began.IsZero() {
		d.began = now
	}
	hour := int64(now.Sub(d.began) / time.Hour)
	for d.hour = max(d.hour, hour-int64(len(d.hours))); d.hour < hour; {
		d.hour++
		d.hours[d.hour%int64(len(d.hours))] = done{}
	}
	d.hours[hour%int64(len(d.hours))].add(o)
}

func (d *day) sum() (all done) {
	for _, h := range d.hours {
		all.add(h)
	}
	return all
}

// doneOf returns what a worker has done since it started.
func doneOf(w *worker.Stats) done {
	return done{
		succeeded: w.Embedded.Load() + w.Reused.Load() + w.Unchanged.Load() + w.Skipped.Load() +
			w.Emptied.Load() + w.Removed.Load(),
		failed: w.Failed.Load(),
	}
}

// settleDayLocked adds a worker's new counts to the day.
func (s *Sidecar) settleDayLocked(r *running, now time.Time) {
	stats := r.worker.Stats()
	all := doneOf(stats)
	s.day.add(done{all.succeeded - r.told.succeeded, all.failed - r.told.failed}, now)
	r.told = all
	if at := stats.LastBatch.Load(); at != 0 && time.Unix(0, at).After(s.day.last) {
		s.day.last = time.Unix(0, at)
	}
}

// dayNow returns the counts of the last 24 hours, and the time since the last batch ended; nil: none.
func (s *Sidecar) dayNow() (all done, idle *time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.day.add(done{}, now)
	for _, r := range s.running {
		s.settleDayLocked(r, now)
	}
	if !s.day.last.IsZero() {
		d := max(now.Sub(s.day.last), 0)
		idle = &d
	}
	return s.day.sum(), idle
}
