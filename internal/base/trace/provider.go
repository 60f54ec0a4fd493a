// Package trace tells an OpenTelemetry collector of the way of a change, from its commit to its vector: one trace for
// each change that is sampled. Nothing of it exists unless OTEL_... says where the collector is; then spans wait in a
// queue that is bounded, and whatever the collector does, no work waits for it. No text or vector is ever in a span.
//
// A trace goes through the queue without a column: its id is made of pipeline, key and time of the commit, which the
// streamer knows of the change and the worker of the task. So both judge alike whether it is sampled, too.
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

// flushTimeout is how long what was not delivered yet may take when the program ends.
const flushTimeout = 3 * time.Second

// Options say who traces.
type Options struct {
	Environ  []string // of the process; OpenTelemetry's library reads what else it wants to know by itself
	Version  string
	Instance string
	ShowKeys bool // spans tell the keys of rows
	Log      *slog.Logger
}

// Provider delivers spans. A nil one is one that is off.
type Provider struct {
	sdk      *sdktrace.TracerProvider
	showKeys bool
	log      *slog.Logger
}

// Open begins to deliver spans, if the environment says where to. It returns nil where it does not, or asks for what
// there is not: variables for all programs of a machine are no reason not to work.
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
	// What the library has to say, about a variable that it does not understand, goes where all else does.
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("traces", "error", wording.OneLine(err.Error()))
	}))
	// The environment has the last word: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(serviceName.String("embedsidecar"),
		serviceVersion.String(o.Version), serviceInstance.String(o.Instance)), resource.WithFromEnv())
	if err != nil && of == nil {
		of = resource.Empty()
	}
	// The sampler is that of OTEL_TRACES_SAMPLER, and the queue's bounds are those of OTEL_BSP_...
	return &Provider{
		sdk: sdktrace.NewTracerProvider(sdktrace.WithResource(of), sdktrace.WithIDGenerator(generator{}),
			sdktrace.WithBatcher(&told{SpanExporter: exporter, log: o.Log})),
		showKeys: o.ShowKeys, log: o.Log,
	}
}

// wanted returns by which protocol the environment wants spans delivered; "": it wants none.
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

// Close delivers what waits, within a limit, and ends.
func (p *Provider) Close(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := p.sdk.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		p.log.WarnContext(ctx, "the last traces are not delivered", "timeout", flushTimeout.String())
	}
}

// told delivers spans and says once that it cannot, and once that it can again.
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
		t.log.WarnContext(ctx, "traces are not delivered; work goes on, and this is not said again until they are",
			"error", wording.OneLine(err.Error()))
	case err == nil && t.failed.Swap(false):
		t.log.InfoContext(ctx, "traces are delivered again")
	}
	return nil // the library would say it each time
}

// Attributes that OpenTelemetry's semantic conventions name (1.43). Their Go package is not used: it would bring
// thousands of names into the program, for these.
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

// Attributes of ours.
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
