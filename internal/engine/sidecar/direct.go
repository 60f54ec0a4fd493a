package sidecar

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/queue"
	"github.com/embedsidecar/embedsidecar/replication"
)

// direct returns how changes are worked at once; nil: not at all.
func (s *Sidecar) direct() func(context.Context, int64, []queue.Change) (replication.Directed, error) {
	if s.o.NoDirect {
		return nil
	}
	return s.workNow
}

// workNow works changes whose pipelines are quick, those of different pipelines side by side, and leaves the others.
func (s *Sidecar) workNow(ctx context.Context, epoch int64, changes []queue.Change) (d replication.Directed,
	err error,
) {
	began, ready := time.Now(), s.readyWorkers(changes)
	changes = slices.Clone(changes)
	for i := range changes {
		if ready[changes[i].PipelineID] == nil {
			d.Left = append(d.Left, changes[i])
		}
	}
	changes = slices.DeleteFunc(changes, func(c queue.Change) bool { return ready[c.PipelineID] == nil })
	if len(changes) == 0 {
		return d, nil
	}
	if err := failpoint.Hit("direct/handed"); err != nil {
		return d, err
	}
	if one := changes[0].PipelineID; s.line != nil && !ready[one].Routed() && !slices.ContainsFunc(changes,
		func(c queue.Change) bool { return c.PipelineID != one }) {
		return s.workStraight(ctx, ready[one], epoch, changes, d.Left)
	}
	screened, err := s.queue.Screen(ctx, s.o.Direct, changes)
	if err != nil {
		return d, err
	}
	d.Left, d.Own, d.Dropped = append(d.Left, screened.Later...), screened.Own, screened.Dropped
	if len(screened.Now) == 0 {
		return d, nil
	}
	if err := failpoint.Hit("direct/screened"); err != nil {
		return d, err
	}
	handed := time.Now()
	var (
		mu    sync.Mutex
		works sync.WaitGroup
	)
	for now := screened.Now; len(now) > 0; { // sorted by pipeline
		n := 1
		for n < len(now) && now[n].PipelineID == now[0].PipelineID {
			n++
		}
		some := now[:n]
		works.Go(func() {
			right := &queue.Direct{Slot: s.o.Slot, Epoch: epoch}
			embedding := ready[some[0].PipelineID].Direct(ctx, right, some)
			mu.Lock()
			defer mu.Unlock()
			d.Embedding = max(d.Embedding, embedding)
			s.handedOver(ctx, right, some, began, handed)
			for i := range some {
				if right.Done(some[i].RowKey) {
					d.Done++
				} else {
					d.Left = append(d.Left, some[i])
				}
			}
		})
		now = now[n:]
	}
	works.Wait()
	return d, ended(ctx, d.Done < len(screened.Now))
}

// ended is the end of changes that were to be worked at once: some may be left.
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

// workStraight works changes of one pipeline over a connection that is for nothing else. left are others.
func (s *Sidecar) workStraight(ctx context.Context, w *worker.Worker, epoch int64, changes, left []queue.Change,
) (d replication.Directed, err error) {
	right := &queue.Direct{Slot: s.o.Slot, Epoch: epoch}
	if right.Line, err = s.line.Conn(ctx); err != nil {
		s.o.Log.DebugContext(ctx, "no line to the server", "error", err)
		return replication.Directed{Left: append(left, changes...)}, ended(ctx, true)
	}
	began := time.Now()
	screened, embedding := w.Straight(ctx, right, changes)
	s.line.Failed(ctx, right.Err)
	s.handedOver(ctx, right, screened.Now, began, began)
	d = replication.Directed{
		Left: append(left, screened.Later...), Own: screened.Own, Dropped: screened.Dropped, Embedding: embedding,
	}
	for i := range screened.Now {
		if right.Done(screened.Now[i].RowKey) {
			d.Done++
		} else {
			d.Left = append(d.Left, screened.Now[i])
		}
	}
	return d, ended(ctx, d.Done < len(screened.Now))
}

// readyWorkers returns the workers of pipelines whose changes would be worked at once.
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
