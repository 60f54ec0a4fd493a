// Package trace sends an OpenTelemetry collector the path of a change, from its commit to its vector: one trace for
// each sampled change. It is off unless OTEL_... names the collector. Spans then wait in a bounded queue, and work
// never waits for the collector. Spans contain no text or vector.
//
// A trace needs no column in the queue: its id is derived from pipeline, key and commit time, which the streamer knows
// from the change and the worker from the task. So both make the same sampling decision.
package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
)

// flushTimeout is how long the delivery of pending spans may take when the program ends.
const flushTimeout = 3 * time.Second

// Options describe the process that traces.
type Options struct {
	Environ  []string // of the process; OpenTelemetry's library reads further variables itself
	Version  string
	Instance string
	ShowKeys bool // spans contain row keys
	Log      *slog.Logger
}

// Provider delivers spans. A nil one is off.
type Provider struct {
	sdk      *sdktrace.TracerProvider
	showKeys bool
	log      *slog.Logger
}

// Open starts the delivery of spans, if the environment configures it. It returns nil if it does not, or if it asks for
// something unsupported: variables for all programs of a machine must not stop this one.
func Open(ctx context.Context, o Options) *Provider {
	protocol, err := wanted(o.Environ)
	if err == nil && protocol == "" {
		return nil
	}
	var exporter sdktrace.SpanExporter
	switch {
	case err != nil:
	case protocol == "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	default:
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		o.Log.WarnContext(ctx, "no traces", "error", wording.OneLine(err.Error()))
		return nil
	}
	// The library's messages, such as about an invalid variable, go to our log.
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("traces", "error", wording.OneLine(err.Error()))
	}))
	// The environment takes precedence: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(serviceName.String("embedsidecar"),
		serviceVersion.String(o.Version), serviceInstance.String(o.Instance)), resource.WithFromEnv())
	if err != nil && of == nil {
		of = resource.Empty()
	}
	// The library reads the sampler from OTEL_TRACES_SAMPLER, and the queue's limits from OTEL_BSP_...
	return &Provider{
		sdk: sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithIDGenerator(generator{}),
			sdktrace.WithBatcher(&told{SpanExporter: exporter, log: o.Log})),
		showKeys: o.ShowKeys, log: o.Log,
	}
}

// wanted returns the protocol that the environment asks for; "": none.
func wanted(environ []string) (protocol string, err error) {
	of := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "OTEL_") {
			of[name] = strings.TrimSpace(value)
		}
	}
	exporter := of["OTEL_TRACES_EXPORTER"]
	endpoint := of["OTEL_EXPORTER_OTLP_ENDPOINT"] + of["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
	switch {
	case strings.EqualFold(of["OTEL_SDK_DISABLED"], "true"), exporter == "none", exporter == "" && endpoint == "":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER: expected otlp or none, not %q", exporter)
	}
	protocol = "http/protobuf"
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if value := of[name]; value != "" {
			if value != "grpc" && value != "http/protobuf" {
				return "", fmt.Errorf("%s: expected grpc or http/protobuf, not %q", name, value)
			}
			return value, nil
		}
	}
	return protocol, nil
}

// Close delivers pending spans within a limit, and stops.
func (p *Provider) Close(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := p.sdk.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		p.log.WarnContext(ctx, "could not deliver the last traces", "timeout", flushTimeout.String())
	}
}

// told delivers spans, and logs once that it fails, and once that it works again.
type told struct {
	sdktrace.SpanExporter

	log    *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !t.failed.Swap(true):
		t.log.WarnContext(ctx, "could not deliver traces; further failures are not logged until delivery works again",
			"error", wording.OneLine(err.Error()))
	case err == nil && t.failed.Swap(false):
		t.log.InfoContext(ctx, "traces are delivered again")
	}
	return nil // the library would log each one
}

// Attributes of OpenTelemetry's semantic conventions (1.43). Their Go package would add thousands of names to the
// program.
const (
	errorType           = attribute.Key("error.type")
	messagingSystem     = attribute.Key("messaging.system")
	messagingOperation  = attribute.Key("messaging.operation.name")
	messagingType       = attribute.Key("messaging.operation.type")
	messagingTo         = attribute.Key("messaging.destination.name")
	messagingBatch      = attribute.Key("messaging.batch.message_count")
	databaseSystem      = attribute.Key("db.system.name")
	databaseOperation   = attribute.Key("db.operation.name")
	databaseCollection  = attribute.Key("db.collection.name")
	databaseBatch       = attribute.Key("db.operation.batch.size")
	modelOperation      = attribute.Key("gen_ai.operation.name")
	modelProvider       = attribute.Key("gen_ai.provider.name")
	modelName           = attribute.Key("gen_ai.request.model")
	modelTokens         = attribute.Key("gen_ai.usage.input_tokens")
	modelDims           = attribute.Key("gen_ai.embeddings.dimension.count")
	serviceName         = attribute.Key("service.name")
	serviceVersion      = attribute.Key("service.version")
	serviceInstance     = attribute.Key("service.instance.id")
	scope               = "github.com/embedsidecar/embedsidecar"
	systemOfOurs        = "embedsidecar"
	operationEmbeddings = "embeddings"
)

// Our own attributes.
const (
	pipelineName = attribute.Key("embedsidecar.pipeline")
	commitLSN    = attribute.Key("embedsidecar.commit.lsn")
	commitTime   = attribute.Key("embedsidecar.commit.time")
	rowKey       = attribute.Key("embedsidecar.row.key")
	attempt      = attribute.Key("embedsidecar.attempt")
	way          = attribute.Key("embedsidecar.way") // direct or queue
	outcome      = attribute.Key("embedsidecar.outcome")
	texts        = attribute.Key("embedsidecar.texts")
	textsSent    = attribute.Key("embedsidecar.texts.sent")
)
