package trace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/internal/base/trace"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// spans is a collector that stores its spans.
type spans struct {
	collector.UnimplementedTraceServiceServer

	mu  sync.Mutex
	got []*tracepb.Span
}

// Export implements collector.TraceServiceServer.
func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			s.got = append(s.got, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	_, _ = s.Export(r.Context(), request)
}

// names returns the names of the spans, sorted.
func (s *spans) names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.got {
		names = append(names, span.GetName())
	}
	slices.Sort(names)
	return names
}

var docs = trace.Pipeline{ID: 7, Name: "docs", Table: "public.docs", Into: "public.docs_embedding"}

// open opens a provider with these variables and no others of OpenTelemetry's.
func open(t *testing.T, log io.Writer, environ ...string) *trace.Provider {
	t.Helper()
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	return trace.Open(t.Context(), trace.Options{
		Environ: environ, Version: "1", Instance: "here", Log: slog.New(slog.NewTextHandler(log, nil)),
	})
}

// work traces one row from its commit to its vector, by a streamer and a worker that share no state.
func work(t *testing.T, p *trace.Provider, key string, committed time.Time) {
	t.Helper()
	rows := []trace.Row{{Key: key, LSN: "0/16B3748", CommittedAt: committed}}
	p.Tracer([]byte("secret")).Handed(t.Context(), &docs, rows, "enqueue", time.Now(), time.Now())
	ctx, b := p.Tracer([]byte("secret")).Begin(t.Context(), &docs, rows, false, time.Now())
	b.Claimed(time.Now(), 1)
	trace.From(ctx).Read([]string{key}, time.Now(), "")
	trace.From(ctx).Embedded([]string{key}, time.Now(), trace.Call{Plugin: "fake", Model: "m", Texts: 1, Sent: 1})
	trace.From(ctx).Written([]string{key}, time.Now())
	trace.From(ctx).Ended(key, "embedded", "")
	b.Close()
}

var all = []string{
	"INSERT public.docs_embedding", "SELECT public.docs", "claim docs", "embeddings m", "enqueue docs", "process docs",
	"receive docs",
}

// whole fails the test unless the spans are one trace, with ids derived from what both sides know.
func (s *spans) whole(t *testing.T) {
	t.Helper()
	if got := s.names(); !slices.Equal(got, all) {
		t.Fatalf("spans %q, want %q", got, all)
	}
	of := map[string]*tracepb.Span{}
	for _, span := range s.got {
		of[span.GetName()] = span
		if !bytes.Equal(span.GetTraceId(), s.got[0].GetTraceId()) {
			t.Errorf("%s is of another trace", span.GetName())
		}
		for _, a := range span.GetAttributes() {
			if a.GetKey() == "embedsidecar.row.key" {
				t.Errorf("%s tells the key", span.GetName())
			}
		}
	}
	for _, name := range all {
		under := "process docs"
		if name == "enqueue docs" || name == under {
			under = "receive docs"
		}
		if name != "receive docs" && !bytes.Equal(of[name].GetParentSpanId(), of[under].GetSpanId()) {
			t.Errorf("%s is not under %s", name, under)
		}
	}
	if len(of["receive docs"].GetParentSpanId()) > 0 {
		t.Error("the first span has a parent")
	}
}

// Streamer and worker make one trace, which is delivered at the end at the latest, by either protocol.
func TestTrace_TwoSidesMakeOneTrace(t *testing.T) {
	t.Run("http", func(t *testing.T) {
		to := &spans{}
		server := httptest.NewServer(to)
		defer server.Close()
		p := open(t, io.Discard, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL)
		work(t, p, "1", time.Now().Add(-time.Second))
		p.Close(t.Context())
		to.whole(t)
	})
	t.Run("grpc", func(t *testing.T) {
		to := &spans{}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		collector.RegisterTraceServiceServer(server, to)
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		p := open(t, io.Discard, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://"+listener.Addr().String(),
			"OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
		work(t, p, "1", time.Now().Add(-time.Second))
		p.Close(t.Context())
		to.whole(t)
	})
}

// Of many changes the sampler's share is traced, each completely or not at all.
func TestTrace_WhatIsSampledIsWhole(t *testing.T) {
	to := &spans{}
	server := httptest.NewServer(to)
	defer server.Close()
	p := open(t, io.Discard, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=0.3")
	const changes = 200 // of seven spans: fewer than the queue holds
	for i := range changes {
		work(t, p, fmt.Sprint(i), time.Now())
	}
	p.Close(t.Context())
	of := map[string]int{}
	for _, span := range to.got {
		of[string(span.GetTraceId())]++
	}
	if len(of) < changes/10 || len(of) > changes/2 {
		t.Errorf("%d of %d changes are traced", len(of), changes)
	}
	for _, n := range of {
		if n != len(all) {
			t.Fatalf("a trace of %d spans, want %d", n, len(all))
		}
	}
}

// A missing or silent collector delays no work and is logged once; pending spans are given up at the end after a while.
func TestTrace_ADeadCollectorHoldsNothingUp(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(hang)
	for name, endpoint := range map[string]string{"refuses": "http://127.0.0.1:1", "hangs": server.URL} {
		t.Run(name, func(t *testing.T) {
			log := &logs.Buffer{}
			p := open(t, log, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_BSP_SCHEDULE_DELAY=10",
				"OTEL_EXPORTER_OTLP_TIMEOUT=50", "OTEL_BSP_EXPORT_TIMEOUT=200",
				"OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16")
			const said = "could not deliver traces"
			most := time.Duration(0)
			work1 := func() {
				began := time.Now()
				work(t, p, "1", time.Now())
				most = max(most, time.Since(began))
			}
			testenv.Eventually(t, time.Minute, func() (bool, string) {
				work1()
				return strings.Contains(log.String(), said), "nothing is said"
			})
			for range 2000 { // far more than the queue holds
				work1()
			}
			if most > time.Second {
				t.Errorf("a row waited for %s", most)
			}
			began := time.Now()
			p.Close(t.Context())
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the end took %s", took)
			}
			if n := strings.Count(log.String(), said); n != 1 {
				t.Errorf("said %d times:\n%s", n, log.String())
			}
		})
	}
}

// Without the variables, or if they disable it, tracing is off; an invalid variable is logged.
func TestTrace_IsOffUnlessItIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		says    string
		environ []string
	}{
		{"", nil},
		{"", []string{"OTEL_TRACES_SAMPLER=always_on", "PATH=/bin"}},
		{"", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}},
		{"", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"}},
		{"expected grpc or http/protobuf", []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
		}},
		{"expected otlp or none", []string{"OTEL_TRACES_EXPORTER=console"}},
	} {
		log := &logs.Buffer{}
		p := open(t, log, c.environ...)
		if p != nil {
			t.Errorf("%v: it is on", c.environ)
		}
		if text := log.String(); !strings.Contains(text, c.says) || c.says == "" && text != "" {
			t.Errorf("%v: the log says %q, want %q", c.environ, text, c.says)
		}
		p.Close(t.Context())
	}
}

// When off, tracing a batch allocates nothing.
func TestTrace_OffAllocatesNothing(t *testing.T) {
	var off *trace.Provider
	tracer := off.Tracer(nil)
	rows := []trace.Row{{Key: "1"}}
	keys := []string{"1"}
	ctx := t.Context()
	n := testing.AllocsPerRun(100, func() {
		tracer.Handed(ctx, &docs, rows, "enqueue", time.Time{}, time.Time{})
		working, b := tracer.Begin(ctx, &docs, rows, false, time.Time{})
		b.Claimed(time.Time{}, 1)
		of := trace.From(working)
		of.Read(keys, time.Time{}, "")
		of.Embedded(keys, time.Time{}, trace.Call{})
		of.Written(keys, time.Time{})
		of.Ended("1", "embedded", "")
		b.Close()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTrace measures the cost of tracing a row.
func BenchmarkTrace(b *testing.B) {
	for name, sampler := range map[string]string{"all": "always_on", "none": "always_off"} {
		b.Run(name, func(b *testing.B) {
			b.Setenv("OTEL_TRACES_SAMPLER", sampler)
			p := trace.Open(b.Context(), trace.Options{
				Environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=x"}, Log: slog.New(slog.DiscardHandler),
			})
			defer p.Close(b.Context())
			t := p.Tracer([]byte("secret"))
			rows, keys := []trace.Row{{Key: "1", LSN: "0/1", CommittedAt: time.Now()}}, []string{"1"}
			b.ReportAllocs()
			for b.Loop() {
				t.Handed(b.Context(), &docs, rows, "enqueue", time.Now(), time.Now())
				ctx, batch := t.Begin(b.Context(), &docs, rows, false, time.Now())
				batch.Claimed(time.Now(), 1)
				trace.From(ctx).Read(keys, time.Now(), "")
				trace.From(ctx).Embedded(keys, time.Now(), trace.Call{Model: "m"})
				trace.From(ctx).Written(keys, time.Now())
				trace.From(ctx).Ended("1", "embedded", "")
				batch.Close()
			}
		})
	}
}
