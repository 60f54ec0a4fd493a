package worker

import (
	"context"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/queue"
)

// Traces of a batch. Without a tracer these functions return at once and allocate nothing.

// trace begins the traces of a batch; the caller closes them.
func (w *Worker) trace(ctx context.Context, tasks []queue.Task) (context.Context, *trace.Batch) {
	if w.o.Tracer == nil {
		return ctx, nil
	}
	rows := make([]trace.Row, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		rows[i] = trace.Row{
			Key: t.RowKey, LSN: t.LastLSN.String(), CommittedAt: t.CommittedAt, NoCommit: t.FirstLSN == 0,
			Attempt: int(t.Attempt),
		}
	}
	direct, began := tasks[0].IsDirect(), time.Now()
	if work := tasks[0].Lease.Work; work != nil {
		began = work.Began
	}
	ctx, b := w.o.Tracer.Begin(ctx, &w.traced, rows, direct, began)
	if !direct {
		b.Claimed(began, len(tasks))
	}
	return ctx, b
}

// traceOf returns the traces of the current batch; nil: none.
func (w *Worker) traceOf(ctx context.Context) *trace.Batch {
	if w.o.Tracer == nil {
		return nil
	}
	return trace.From(ctx)
}

// traceEmbedded records an embedder call for items.
func (w *Worker) traceEmbedded(ctx context.Context, items []item, began time.Time, texts int, results []embed.Result,
	err error,
) {
	b := w.traceOf(ctx)
	if b == nil {
		return
	}
	call := trace.Call{Texts: texts}
	if about, err := w.o.Service.Describe(ctx); err == nil {
		call.Plugin, call.Model, call.Dims = about.Plugin, about.Model, about.Dims
	}
	for i := range results {
		if results[i].Sent {
			call.Sent++
			call.Tokens += results[i].Tokens
		}
	}
	if err != nil {
		_, call.Code = embed.Classify(err)
	}
	var keys []string
	for i := range items {
		if items[i].sent {
			keys = append(keys, items[i].task.RowKey)
		}
	}
	b.Embedded(keys, began, call)
}

// traceRead records that the rows of items were read.
func (w *Worker) traceRead(ctx context.Context, items []item, began time.Time) {
	b := w.traceOf(ctx)
	if b == nil {
		return
	}
	keys := lists.Map(items, func(v item) string { return v.task.RowKey })
	b.Read(keys, began, "")
}

// traceWritten records that items were written.
func (w *Worker) traceWritten(ctx context.Context, items []item, began time.Time) {
	b := w.traceOf(ctx)
	if b == nil {
		return
	}
	keys := make([]string, 0, len(items))
	for i := range items {
		if a := items[i].action; a != nothing && a != broken {
			keys = append(keys, items[i].task.RowKey)
		}
	}
	b.Written(keys, began)
}

// traceEnded records the outcomes of tasks.
func (w *Worker) traceEnded(ctx context.Context, outcomes []queue.Outcome) {
	b := w.traceOf(ctx)
	if b == nil {
		return
	}
	for i := range outcomes {
		b.Ended(outcomes[i].Task.RowKey, outcomes[i].What, outcomes[i].Code)
	}
}
