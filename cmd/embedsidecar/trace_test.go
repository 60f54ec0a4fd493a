package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/embedsidecar/embedsidecar/testenv"
)

// traces is a collector that keeps the spans it gets, by trace and name.
type traces struct {
	mu  sync.Mutex
	of  map[string]map[string]*tracepb.Span
	raw []byte
	by  string // what sent it: service.name and service.instance.id
}

func (c *traces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &collector.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body...)
	for _, of := range request.GetResourceSpans() {
		c.by = attributeOf(of.GetResource().GetAttributes(), "service.name") + " " +
			attributeOf(of.GetResource().GetAttributes(), "service.instance.id")
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := hex.EncodeToString(span.GetTraceId())
				if c.of[id] == nil {
					c.of[id] = map[string]*tracepb.Span{}
				}
				c.of[id][span.GetName()] = span
			}
		}
	}
}

func attributeOf(of []*common.KeyValue, name string) string {
	for _, a := range of {
		if a.GetKey() == name {
			if a.GetValue().GetStringValue() != "" {
				return a.GetValue().GetStringValue()
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

// whole returns a trace that begins with a commit, ends with a vector, and took this path; nil: there is none yet.
func (c *traces) whole(way string) map[string]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range c.of {
		process := spans["process public.docs"]
		if spans["receive public.docs"] != nil && attributeOf(process.GetAttributes(), "embedsidecar.way") == way &&
			attributeOf(process.GetAttributes(), "embedsidecar.outcome") == "embedded" {
			return spans
		}
	}
	return nil
}

// One trace leads from the commit to the vector, whether a change is embedded directly or through the queue. No span
// has a row's text or key.
func TestRun_TracesFromCommitToVector(t *testing.T) {
	t.Parallel()
	for way, flag := range map[string]string{"queue": "workers.direct=false", "direct": "workers.direct=true"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			to := &traces{of: map[string]map[string]*tracepb.Span{}}
			server := httptest.NewServer(to)
			t.Cleanup(server.Close)
			s := newStage(t, 0)
			s.set("OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL)
			s.set("OTEL_BSP_SCHEDULE_DELAY=50")
			d := s.start("--pipeline", "docs: title, body -> table docs_embedding", "--instance", "one", "--set", flag)
			d.logged("streaming", "slot")
			const secret = "unspeakable"
			var spans map[string]*tracepb.Span
			next := 0
			testenv.Eventually(t, waitTimeout, func() (bool, string) {
				next++
				s.db.MustExec(`INSERT INTO docs VALUES (987600000 + $1, $2, 'body')`, next, fmt.Sprint(secret, next))
				s.run(0, "wait", "--caught-up")
				spans = to.whole(way)
				return spans != nil, fmt.Sprintf("no trace went the way %s after %d changes", way, next)
			})
			d.end(syscall.SIGTERM, 0)
			s.tellsTheWay(spans, way)
			to.mu.Lock()
			defer to.mu.Unlock()
			if raw := string(to.raw); strings.Contains(raw, secret) || strings.Contains(raw, "9876000") {
				t.Error("a span tells a text or a key")
			}
			if to.by != "embedsidecar one" {
				t.Errorf("sent by %q", to.by)
			}
		})
	}
}

// tellsTheWay compares a trace with the expected path.
func (s *stage) tellsTheWay(spans map[string]*tracepb.Span, way string) {
	s.t.Helper()
	steps := []string{"SELECT public.docs", "embeddings fake", "INSERT public.docs_embedding"}
	handed := "hand over public.docs"
	if way == "queue" {
		steps, handed = append([]string{"claim public.docs"}, steps...), "enqueue public.docs"
	}
	receive, process := spans["receive public.docs"], spans["process public.docs"]
	if len(spans) != len(steps)+3 || spans[handed] == nil {
		s.t.Fatalf("the trace has the spans %v", spans)
	}
	before := receive.GetStartTimeUnixNano()
	for _, name := range steps {
		step := spans[name]
		if step == nil {
			s.t.Fatalf("the trace has no span %q: %v", name, spans)
		}
		if string(step.GetParentSpanId()) != string(process.GetSpanId()) || step.GetStartTimeUnixNano() < before ||
			step.GetEndTimeUnixNano() > process.GetEndTimeUnixNano() {
			s.t.Errorf("%s is not in its place: %v", name, step)
		}
		before = step.GetStartTimeUnixNano()
	}
	if string(process.GetParentSpanId()) != string(receive.GetSpanId()) ||
		string(spans[handed].GetParentSpanId()) != string(receive.GetSpanId()) {
		s.t.Error("the work is not under the change")
	}
	at, err := time.Parse(time.RFC3339Nano, attributeOf(receive.GetAttributes(), "embedsidecar.commit.time"))
	if err != nil || at.UnixNano() != int64(receive.GetStartTimeUnixNano()) {
		s.t.Errorf("it begins at %d, not with the commit: %v %v", receive.GetStartTimeUnixNano(), at, err)
	}
	if lsn := attributeOf(receive.GetAttributes(), "embedsidecar.commit.lsn"); !strings.Contains(lsn, "/") ||
		lsn != attributeOf(process.GetAttributes(), "embedsidecar.commit.lsn") {
		s.t.Errorf("the commit is at %q", lsn)
	}
	for _, a := range []struct{ name, want string }{
		{"gen_ai.operation.name", "embeddings"},
		{"gen_ai.provider.name", "fake"},
		{"gen_ai.embeddings.dimension.count", "8"},
		{"embedsidecar.texts", "1"},
		{"embedsidecar.texts.sent", "1"},
	} {
		if got := attributeOf(spans["embeddings fake"].GetAttributes(), a.name); got != a.want {
			s.t.Errorf("embeddings: %s is %q, want %q", a.name, got, a.want)
		}
	}
}
