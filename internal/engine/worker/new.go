package worker

import (
	"cmp"

	"github.com/embedsidecar/embedsidecar/internal/base/limit"
	"github.com/embedsidecar/embedsidecar/internal/base/pace"
	"github.com/embedsidecar/embedsidecar/internal/base/restart"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/internal/engine/rows"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// New returns a Worker.
func New(o Options) *Worker {
	o.Loops = cmp.Or(o.Loops, pipeline.DefaultLoops)
	o.BatchRows = cmp.Or(o.BatchRows, pipeline.DefaultBatchRows)
	o.HeldRows = cmp.Or(o.HeldRows, heldRows)
	o.Lease = cmp.Or(o.Lease, pipeline.DefaultLease)
	o.Quick = cmp.Or(o.Quick, QuickEnough)
	o.Retry.MaxAttempts = cmp.Or(o.Pipeline.MaxAttempts, o.Retry.MaxAttempts, pipeline.DefaultMaxAttempts)
	o.Retry.Initial = cmp.Or(o.Retry.Initial, pipeline.DefaultFirstRetry)
	o.Retry.Max = cmp.Or(o.Retry.Max, pipeline.DefaultLongestRetry)
	o.Budget = cmp.Or(o.Budget, NewBudget(0))
	o.InWork = cmp.Or(o.InWork, limit.NewInWork(0))
	o.Keeper = cmp.Or(o.Keeper, restart.New(o.Log))
	of := rows.New(o.Pipeline, o.DB, rows.Options{UserPath: o.UserPath, Overtime: o.Overtime})
	w := &Worker{
		o: o, tasks: o.Queue, table: of, store: &server{o.Pipeline, o.DB, of, o.ID, o.Jobs},
		pages: func() pages { return of.Pages() },
		pace:  pace.Pace{Share: pace.Queue},
	}
	w.most, w.limit = firstText, firstText
	if chunks := of.Chunks(); chunks != nil {
		w.chunks, w.most, w.limit = chunks, w.o.BatchRows*bigText+maxChunked, bigText
	}
	if o.Service != nil {
		w.quick.others = o.Service.Usual()
	}
	w.traced = Traced(o.Pipeline)
	return w
}

// Traced describes a pipeline for traces.
func Traced(p *pipeline.Pipeline) trace.Pipeline {
	of := trace.Pipeline{ID: p.ID, Name: p.Name, Table: p.Schema + "." + p.Table}
	if of.Into = of.Table; !p.InSource() {
		d := p.Destination()
		of.Into = d.Schema + "." + d.Table
	}
	return of
}
