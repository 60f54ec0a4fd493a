package worker

import (
	"context"
	"time"
)

// progress tells the log how far a scan is, once per heartbeat of the scan, which is a minute: a large table takes
// hours, and between its start and its end nothing else would be said.
type progress struct {
	told time.Time
	seen int64 // when it was told, of those of the scan
}

// tell is called after each step of a scan that goes on.
func (s *Scan) tell(ctx context.Context, every time.Duration) {
	if s.progress.told.IsZero() {
		s.progress.told = time.Now()
	}
	since := time.Since(s.progress.told)
	if since < every {
		return
	}
	p := s.w.o.Pipeline
	phase, seen, expected, err := s.w.store.scanProgress(ctx)
	if err != nil {
		return // the next step meets it as well
	}
	rate := float64(max(seen-s.progress.seen, 0)) / since.Seconds()
	args := []any{"pipeline", p.Name, "phase", phase, "rows_seen", seen, "rows_per_second", int64(rate)}
	if expected > seen && rate > 0 {
		args = append(args, "rows_expected", expected, "left",
			(time.Duration(float64(expected-seen)/rate) * time.Second).String())
	}
	s.w.o.Log.InfoContext(ctx, "scan goes on", args...)
	s.progress = progress{time.Now(), seen}
}
