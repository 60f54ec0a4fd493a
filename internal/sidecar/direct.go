package sidecar

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/failpoint"
	"github.com/embedsidecar/embedsidecar/internal/worker"
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
	began, ready := time.Now(), s.readyWorkers()
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
	screened, err := s.queue.Screen(ctx, s.o.Direct, changes)
	if err != nil {
		return d, err
	}
	d.Left, d.Dropped = append(d.Left, screened.Later...), screened.Dropped
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
	if d.Done < len(screened.Now) {
		if err := failpoint.Hit("direct/left"); err != nil {
			return d, err
		}
	}
	if ctx.Err() != nil {
		return d, errors.Join(ctx.Err(), failpoint.Hit("direct/interrupted"))
	}
	return d, nil
}

// readyWorkers returns the workers of pipelines whose changes would be worked at once.
func (s *Sidecar) readyWorkers() map[int32]*worker.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := make(map[int32]*worker.Worker, len(s.running))
	for id, r := range s.running {
		if r.worker.Ready() {
			ready[id] = r.worker
		}
	}
	return ready
}
