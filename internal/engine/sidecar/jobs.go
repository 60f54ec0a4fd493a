package sidecar

import (
	"context"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/engine/jobs"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// jobsOf returns the batch jobs of a pipeline.
func (s *Sidecar) jobsOf(p *pipeline.Pipeline, service *embed.Service) *jobs.Jobs {
	o := jobs.Options{
		Pipeline: p, DB: s.o.Pool, Service: service, ID: s.me().id, Log: s.o.Log,
		Backlog: func(ctx context.Context) (int, error) { return s.queue.Backlog(ctx, p.ID, jobs.Released) },
		Wake:    func() { s.queue.Wake(p.ID) }, Storable: s.storable,
	}
	if s.o.Price != nil {
		o.Price = s.o.Price(p)
	}
	return jobs.New(o)
}

// cancelJobs cancels the batch jobs of removed pipelines at their providers.
func (s *Sidecar) cancelJobs(ctx context.Context) {
	if s.idle() {
		return
	}
	err := jobs.CancelOrphans(ctx, s.o.Pool, s.o.Log, func(p pipeline.Pipeline) (*embed.Service, error) {
		return s.serviceFor(ctx, p)
	})
	if err != nil && ctx.Err() == nil {
		s.o.Log.WarnContext(ctx, "batch jobs of removed pipelines are not cancelled yet", "error", err)
	}
}
