package sidecar

import (
	"time"

	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
)

// done is what workers did: rows that they finished, and rows that they made dead letters of.
type done struct{ succeeded, failed int64 }

func (d *done) add(o done) { d.succeeded, d.failed = d.succeeded+o.succeeded, d.failed+o.failed }

// day is what was done in the last 24 hours, by the hour.
type day struct {
	hours [24]done
	hour  int64     // the one that is counted now, since began
	began time.Time // of a monotonic clock
	last  time.Time // when the last batch ended; zero: there was none
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

// doneOf is what a worker has done since it began.
func doneOf(w *worker.Stats) done {
	return done{
		succeeded: w.Embedded.Load() + w.Reused.Load() + w.Unchanged.Load() + w.Skipped.Load() +
			w.Emptied.Load() + w.Removed.Load(),
		failed: w.Failed.Load(),
	}
}

// settleDayLocked moves what a worker has done to what is told.
func (s *Sidecar) settleDayLocked(r *running, now time.Time) {
	stats := r.worker.Stats()
	all := doneOf(stats)
	s.day.add(done{all.succeeded - r.told.succeeded, all.failed - r.told.failed}, now)
	r.told = all
	if at := stats.LastBatch.Load(); at != 0 && time.Unix(0, at).After(s.day.last) {
		s.day.last = time.Unix(0, at)
	}
}

// dayNow is what was done in the last 24 hours, and how long ago the last batch ended; nil: there was none.
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
