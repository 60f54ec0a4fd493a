package trace

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracer traces changes of a database. A nil one does nothing, and costs nothing.
type Tracer struct {
	tracer   trace.Tracer
	secret   []byte
	showKeys bool
}

// Tracer returns the tracer of the database with this secret, from which trace ids are derived: an id reveals nothing
// about the key, and ids of different databases never collide.
func (p *Provider) Tracer(secret []byte) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.sdk.Tracer(scope), secret, p.showKeys}
}

// Row is a change of a row, or its task.
type Row struct {
	Key         string
	LSN         string    // of the commit, in PostgreSQL's format
	CommittedAt time.Time // by the server's clock
	// NoCommit means that there is no change: a scan queued the row. Its trace begins with the worker.
	NoCommit bool
	Attempt  int // number of previous attempts
}

// Pipeline is the pipeline of the changes.
type Pipeline struct {
	ID   int32
	Name string
	// of the source and the destination, with their schemas
	Table, Into string
}

// ids are the ids of a change's trace and its first span.
type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

func (t *Tracer) ids(p *Pipeline, r *Row) (of ids) {
	mac := hmac.New(sha256.New, t.secret)
	var fixed [12]byte
	binary.BigEndian.PutUint32(fixed[:], uint32(p.ID)) //nolint:gosec // as bytes
	binary.BigEndian.PutUint64(fixed[4:], uint64(r.CommittedAt.UnixMicro()))
	_, _ = mac.Write([]byte("trace"))
	_, _ = mac.Write(fixed[:])
	_, _ = mac.Write([]byte(r.Key))
	sum := mac.Sum(nil)
	copy(of.trace[:], sum)
	copy(of.span[:], sum[len(of.trace):])
	return of
}

type idsKey struct{}

// generator gives the first span of a change its derived ids, and others random ones.
type generator struct{}

// NewIDs implements sdktrace.IDGenerator.
func (generator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	of, ok := ctx.Value(idsKey{}).(ids)
	if !ok {
		_, _ = rand.Read(of.trace[:])
		_, _ = rand.Read(of.span[:])
	}
	return of.trace, of.span
}

// NewSpanID implements sdktrace.IDGenerator.
func (generator) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}

// first begins the first span of a change's trace. The sampler decides by the trace's id, so streamer and worker get
// the same decision. Only the streamer ends the span.
func (t *Tracer) first(ctx context.Context, p *Pipeline, r *Row) trace.Span {
	_, span := t.tracer.Start(context.WithValue(ctx, idsKey{}, t.ids(p, r)), "receive "+p.Name, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(r.CommittedAt))
	return span
}

// describe sets the common attributes of a change's main spans.
func (t *Tracer) describe(span trace.Span, p *Pipeline, r *Row, operation, kind string) {
	span.SetAttributes(messagingSystem.String(systemOfOurs), messagingTo.String(p.Name),
		messagingOperation.String(operation), messagingType.String(kind), pipelineName.String(p.Name),
		databaseSystem.String("postgresql"), databaseCollection.String(p.Table),
		commitTime.String(r.CommittedAt.UTC().Format(time.RFC3339Nano)))
	if r.LSN != "" {
		span.SetAttributes(commitLSN.String(r.LSN))
	}
	if t.showKeys {
		span.SetAttributes(rowKey.String(r.Key))
	}
}

// Handed reports changes of a pipeline that were read from the stream at read, and handed over at handed: to the queue,
// with the word enqueue, or to a worker.
func (t *Tracer) Handed(ctx context.Context, p *Pipeline, rows []Row, word string, read, handed time.Time) {
	if t == nil {
		return
	}
	for i := range rows {
		r := &rows[i]
		span := t.first(ctx, p, r)
		if !span.IsRecording() {
			continue
		}
		t.describe(span, p, r, "receive", "receive")
		_, step := t.tracer.Start(trace.ContextWithSpan(ctx, span), word+" "+p.Name,
			trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(read), trace.WithAttributes(
				messagingSystem.String(systemOfOurs), messagingTo.String(p.Name), messagingOperation.String(word),
				messagingType.String("send"), messagingBatch.Int(len(rows))))
		step.End(trace.WithTimestamp(handed))
		span.End(trace.WithTimestamp(latest(handed, r.CommittedAt)))
	}
}

// latest returns the later of two times: the server's clock may be ahead of ours.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Batch is a worker's batch of rows: each sampled row has the steps in its own trace. A nil one does nothing.
type Batch struct {
	t     *Tracer
	p     *Pipeline
	ctx   context.Context //nolint:containedctx // without the batch: the context of its spans
	spans map[string]trace.Span
}

type batchKey struct{}

// From returns the batch of ctx; nil: none, or no row of it is sampled.
func From(ctx context.Context) *Batch {
	b, _ := ctx.Value(batchKey{}).(*Batch)
	return b
}

// Begin begins the batch of some rows of a pipeline, which started at began. The caller closes the batch.
func (t *Tracer) Begin(ctx context.Context, p *Pipeline, rows []Row, direct bool, began time.Time,
) (context.Context, *Batch) {
	if t == nil {
		return ctx, nil
	}
	b := &Batch{t: t, p: p, ctx: ctx, spans: map[string]trace.Span{}}
	by := "queue"
	if direct {
		by = "direct"
	}
	for i := range rows {
		r := &rows[i]
		under := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
		if !r.NoCommit {
			first := t.first(ctx, p, r)
			if !first.IsRecording() {
				continue
			}
			under = trace.ContextWithRemoteSpanContext(ctx, first.SpanContext())
		}
		_, span := t.tracer.Start(under, "process "+p.Name, trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithTimestamp(began))
		if !span.IsRecording() {
			continue
		}
		t.describe(span, p, r, "process", "process")
		span.SetAttributes(way.String(by), attempt.Int(r.Attempt+1), messagingBatch.Int(len(rows)))
		b.spans[r.Key] = span
	}
	if len(b.spans) == 0 {
		return ctx, nil
	}
	return context.WithValue(ctx, batchKey{}, b), b
}

// step adds a step, from began to now, to the traces of some rows; nil: of all.
func (b *Batch) step(name string, kind trace.SpanKind, keys []string, began time.Time, code string,
	attributes ...attribute.KeyValue,
) {
	now := time.Now()
	add := func(span trace.Span) {
		_, step := b.t.tracer.Start(trace.ContextWithSpan(b.ctx, span), name, trace.WithSpanKind(kind),
			trace.WithTimestamp(began), trace.WithAttributes(attributes...))
		failed(step, code)
		step.End(trace.WithTimestamp(now))
	}
	if keys == nil {
		for _, span := range b.spans {
			add(span)
		}
		return
	}
	for _, key := range keys {
		if span, ok := b.spans[key]; ok {
			add(span)
		}
	}
}

// failed records an error by its code; "": none. Its message could contain a text.
func failed(span trace.Span, code string) {
	if code != "" {
		span.SetAttributes(errorType.String(code))
		span.SetStatus(codes.Error, code)
	}
}

// Claimed reports that the rows were leased.
func (b *Batch) Claimed(began time.Time, rows int) {
	if b != nil {
		b.step("claim "+b.p.Name, trace.SpanKindClient, nil, began, "", messagingSystem.String(systemOfOurs),
			messagingTo.String(b.p.Name), messagingOperation.String("claim"), messagingType.String("receive"),
			messagingBatch.Int(rows))
	}
}

// Read reports that rows were read; code is that of an error.
func (b *Batch) Read(keys []string, began time.Time, code string) {
	if b != nil {
		b.statement("SELECT", b.p.Table, keys, began, code)
	}
}

// Written reports that rows were written, to the destination's table or into the rows themselves.
func (b *Batch) Written(keys []string, began time.Time) {
	switch {
	case b == nil:
	case b.p.Into == b.p.Table:
		b.statement("UPDATE", b.p.Into, keys, began, "")
	default:
		b.statement("INSERT", b.p.Into, keys, began, "")
	}
}

func (b *Batch) statement(operation, table string, keys []string, began time.Time, code string) {
	attributes := []attribute.KeyValue{
		databaseSystem.String("postgresql"), databaseOperation.String(operation), databaseCollection.String(table),
	}
	if len(keys) > 1 {
		attributes = append(attributes, databaseBatch.Int(len(keys)))
	}
	b.step(operation+" "+table, trace.SpanKindClient, keys, began, code, attributes...)
}

// Call is a call of an embedder.
type Call struct {
	Plugin, Model string
	Dims          int
	Texts, Sent   int // all texts; those of them that were not cached
	Tokens        int
	Code          string // of an error; "": none
}

// Embedded reports that texts of rows were embedded.
func (b *Batch) Embedded(keys []string, began time.Time, c Call) {
	if b == nil {
		return
	}
	attributes := []attribute.KeyValue{
		modelOperation.String(operationEmbeddings), modelProvider.String(c.Plugin), modelName.String(c.Model),
		modelDims.Int(c.Dims), texts.Int(c.Texts), textsSent.Int(c.Sent),
	}
	if c.Tokens > 0 {
		attributes = append(attributes, modelTokens.Int(c.Tokens))
	}
	b.step(operationEmbeddings+" "+c.Model, trace.SpanKindClient, keys, began, c.Code, attributes...)
}

// Ended reports how the work on a row ended; code is that of an error.
func (b *Batch) Ended(key, how, code string) {
	if b == nil {
		return
	}
	if span, ok := b.spans[key]; ok {
		span.SetAttributes(outcome.String(how))
		failed(span, code)
		span.End()
		delete(b.spans, key)
	}
}

// Close ends the other rows: they were returned to the queue, or another worker has them.
func (b *Batch) Close() {
	if b == nil {
		return
	}
	for key := range b.spans {
		b.Ended(key, "given_back", "")
	}
}
