package sidecar

import (
	"context"
	"slices"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/queue"
)

// enqueued returns the function that traces enqueued changes; nil without a tracer.
func (s *Sidecar) enqueued() func(context.Context, []queue.Change, time.Time) {
	if s.tracer == nil {
		return nil
	}
	return func(ctx context.Context, changes []queue.Change, taken time.Time) {
		s.traceHanded(ctx, changes, "enqueue", taken, time.Now())
	}
}

// handedOver traces changes that were processed without a task. The others go to the queue.
func (s *Sidecar) handedOver(ctx context.Context, by *queue.Direct, changes []queue.Change, taken, handed time.Time) {
	if s.tracer == nil {
		return
	}
	done := slices.DeleteFunc(slices.Clone(changes), func(c queue.Change) bool { return !by.Done(c.RowKey) })
	s.traceHanded(ctx, done, "hand over", taken, handed)
}

// traceHanded traces changes that were taken from the stream and handed on, grouped by pipeline.
func (s *Sidecar) traceHanded(ctx context.Context, changes []queue.Change, word string, taken, handed time.Time) {
	rows := map[int32][]trace.Row{}
	for i := range changes {
		c := &changes[i]
		rows[c.PipelineID] = append(rows[c.PipelineID], trace.Row{
			Key: c.RowKey, LSN: c.LSN.String(), CommittedAt: c.CommittedAt,
		})
	}
	states := s.States()
	for i := range states {
		p := &states[i].Pipeline
		if of := rows[p.ID]; of != nil {
			named := worker.Traced(p)
			s.tracer.Handed(ctx, &named, of, word, taken, handed)
		}
	}
}
