package sidecar

import (
	"context"
	"reflect"

	"github.com/embedsidecar/embedsidecar/internal/engine/worker"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/queue"
)

// setUrgencies picks the loaded pipelines whose rows specify their lane.
func (s *Sidecar) setUrgencies(loaded []pipeline.Pipeline) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.urgencies
	s.urgencies = map[int32]*worker.Urgency{}
	for i := range loaded {
		p := &loaded[i]
		if p.PriorityBy == "" || p.Status != pipeline.Active {
			continue
		}
		if u := before[p.ID]; u != nil && reflect.DeepEqual(u.Pipeline, *p) {
			s.urgencies[p.ID] = u
			continue
		}
		s.urgencies[p.ID] = worker.NewUrgency(*p, s.o.Pool, s.o.Quick, s.o.Log)
	}
}

// prioritise sets the lanes of changes from their rows, unless a hint set them. A stream-only sidecar may not read
// rows.
func (s *Sidecar) prioritise(ctx context.Context, changes []queue.Change) {
	s.mu.Lock()
	urgencies := s.urgencies
	s.mu.Unlock()
	if len(urgencies) == 0 || s.o.NoWork {
		return
	}
	of := map[int32][]*queue.Change{}
	for i := range changes {
		if c := &changes[i]; urgencies[c.PipelineID] != nil && !c.Said {
			of[c.PipelineID] = append(of[c.PipelineID], c)
		}
	}
	for id, some := range of {
		urgencies[id].Prioritise(ctx, some)
	}
}
