package sidecar

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
)

// direct returns the function that processes changes directly; nil if that is disabled.
func (s *Sidecar) direct() func(context.Context, int64, []queue.Change) (replication.Directed, error) {
	if s.o.NoDirect {
		return nil
	}
	return s.workNow
}

// workNow processes the changes of quick pipelines, one pipeline after another. It leaves the others, and those that
// remain when the stream has waited long enough.
func (s *Sidecar) workNow(ctx context.Context, epoch int64, changes []queue.Change) (d replication.Directed,
	err error,
) {
	began, quick, handed := time.Now(), cmp.Or(s.o.Quick, worker.QuickEnough), false
	changes = slices.Clone(changes)
	changes = slices.DeleteFunc(changes, func(c queue.Change) bool {
		if c.Later {
			d.Left = append(d.Left, c)
		}
		return c.Later
	})
	slices.SortStableFunc(changes, func(a, b queue.Change) int { return cmp.Compare(a.PipelineID, b.PipelineID) })
	for ready := s.readyWorkers(changes); len(changes) > 0; {
		n := 1
		for n < len(changes) && changes[n].PipelineID == changes[0].PipelineID {
			n++
		}
		some := changes[:n]
		changes = changes[n:]
		w := ready[some[0].PipelineID]
		if w == nil || time.Since(began) > quick {
			d.Left = append(d.Left, some...)
			continue
		}
		if !handed {
			handed = true
			if err := failpoint.Hit("direct/handed"); err != nil {
				return d, err
			}
		}
		s.workOne(ctx, w, epoch, some, &d, began)
	}
	if !handed {
		return d, nil
	}
	return d, ended(ctx, len(d.Left) > 0)
}

// workOne processes changes of one pipeline.
func (s *Sidecar) workOne(ctx context.Context, w *worker.Worker, epoch int64, changes []queue.Change,
	d *replication.Directed, taken time.Time,
) {
	right := &queue.Direct{Slot: s.o.Slot, Epoch: epoch}
	if s.line != nil && w.Lined() {
		line, err := s.line.Conn(ctx)
		if err != nil {
			s.o.Log.DebugContext(ctx, "could not open the direct connection", "error", err)
			d.Left = append(d.Left, changes...)
			return
		}
		right.Line = line
		defer func() { s.line.Failed(ctx, right.Err) }()
	}
	handed := time.Now()
	screened, embedding := w.Direct(ctx, right, changes)
	s.handedOver(ctx, right, screened.Now, taken, handed)
	d.Left, d.Embedding = append(d.Left, screened.Later...), d.Embedding+embedding
	d.Own, d.Dropped = d.Own+screened.Own, d.Dropped+screened.Dropped
	for i := range screened.Now {
		if right.Done(screened.Now[i].RowKey) {
			d.Done++
		} else {
			d.Left = append(d.Left, screened.Now[i])
		}
	}
}

// ended is called after direct processing; left reports whether changes remain.
func ended(ctx context.Context, left bool) error {
	if left {
		if err := failpoint.Hit("direct/left"); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), failpoint.Hit("direct/interrupted"))
	}
	return nil
}

// readyWorkers returns the workers that would process these changes directly.
func (s *Sidecar) readyWorkers(changes []queue.Change) map[int32]*worker.Worker {
	of := map[int32]int{}
	for i := range changes {
		of[changes[i].PipelineID]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(map[int32]*worker.Worker, len(of))
	for id, n := range of {
		if r := s.running[id]; r != nil && r.worker.Ready(n) {
			ready[id] = r.worker
		}
	}
	return ready
}
