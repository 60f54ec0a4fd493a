package ops

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/embedsidecar/embedsidecar/internal/base/metrics"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func get(t *testing.T, h http.Handler, method, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func TestHandler(t *testing.T) {
	m := metrics.New(metrics.Build{Version: "1.2.3"}, nil)
	checks := []Check{{Name: "database"}, {Name: "stream"}}
	h := Handler(Options{
		Ready: func(context.Context) []Check { return checks }, Metrics: m,
		Version: map[string]string{"version": "1.2.3"},
	})
	tests := []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/livez", 200, "ok\n"},
		{"HEAD", "/livez", 200, ""},
		{"GET", "/readyz", 200, "ok\n"},
		{"GET", "/readyz?verbose", 200, "[+]database ok\n[+]stream ok\nready\n"},
		{"GET", "/version", 200, `"version": "1.2.3"`},
		{"GET", "/metrics", 200, `embedsidecar_build_info{goversion=`},
		{"GET", "/", 200, "/readyz?verbose"},
		{"GET", "/nowhere", 404, ""},
		{"POST", "/livez", 405, ""},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/readyz", 405, ""},
	}
	for _, test := range tests {
		status, body, header := get(t, h, test.method, test.path)
		if status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s %s = %d %q, want %d %q", test.method, test.path, status, body, test.status, test.want)
		}
		if header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s may be cached", test.method, test.path)
		}
	}

	checks = []Check{{Name: "database"}, {Name: "plugin onnx", Err: errors.New("it has\nended")}}
	for path, want := range map[string]string{
		"/readyz":         "[-]plugin onnx: it has ended\nnot ready\n",
		"/readyz?verbose": "[+]database ok\n[-]plugin onnx: it has ended\nnot ready\n",
	} {
		if status, body, _ := get(t, h, "GET", path); status != 503 || body != want {
			t.Errorf("%s = %d %q, want 503 %q", path, status, body, want)
		}
	}

	checks = []Check{{Name: "database"}, {Name: "pipeline docs", Err: errors.New("misconfigured"), Aside: true}}
	for path, want := range map[string]string{
		"/readyz":         "[-]pipeline docs: misconfigured\nok\n",
		"/readyz?verbose": "[+]database ok\n[-]pipeline docs: misconfigured\nready\n",
	} {
		if status, body, _ := get(t, h, "GET", path); status != 200 || body != want {
			t.Errorf("%s = %d %q, want 200 %q", path, status, body, want)
		}
	}
}

func TestHandler_Minimal(t *testing.T) {
	h := Handler(Options{Version: func() {}})
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 404, "/version": 500} {
		if status, _, _ := get(t, h, "GET", path); status != want {
			t.Errorf("%s = %d, want %d", path, status, want)
		}
	}
}

func TestServer_RunsUntilAskedToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	entered, leave := make(chan struct{}), make(chan struct{})
	s, err := Listen(ctx, Options{Listen: "127.0.0.1:0", Ready: func(context.Context) []Check {
		close(entered)
		<-leave
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	if _, err := Listen(ctx, Options{Listen: s.Addr().String()}); err == nil || !strings.Contains(err.Error(),
		"listen for probes and metrics") {
		t.Errorf("a taken port: %v", err)
	}
	answer := make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/readyz", nil)
		if err != nil {
			answer <- err.Error()
			return
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		body, err := io.ReadAll(resp.Body)
		answer <- string(body) + errText(errors.Join(err, resp.Body.Close()))
	}()
	<-entered
	cancel() // with a request in progress
	close(leave)
	if got := <-answer; got != "ok\n" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestServer_Close(t *testing.T) {
	s, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a closed server ran")
	}
}

// TestServer_WhoOnlyHoldsConnectionsKeepsNobodyOut: the listener has no authentication, so a probe displaces a silent
// connection.
func TestServer_WhoOnlyHoldsConnectionsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	s, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	const more = 300 // more than it keeps open
	var oldest net.Conn
	for i := range more {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if i == 0 {
			oldest = conn
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/livez",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		t.Errorf("a probe beside %d silent connections: %s", more, response.Status)
	}
	if err := oldest.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil { // before the server closes it
		t.Fatal(err)
	}
	if _, err := oldest.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest of %d silent connections is still open: %v", more, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestServer_OnLoopbackOnlyForThisMachine: a web page may point its own DNS name here.
func TestServer_OnLoopbackOnlyForThisMachine(t *testing.T) {
	h := Handler(Options{Version: "1"})
	ask := func(at, host string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil)
		r.Host = host
		handlerAt(&net.TCPAddr{IP: net.ParseIP(at)}, h).ServeHTTP(w, r)
		return w.Code
	}
	for host, want := range map[string]int{
		"127.0.0.1:7471": 200, "localhost": 200, "[::1]:7471": 200,
		"elsewhere.example": 403, "10.0.0.1:7471": 403, "": 200,
	} {
		if got := ask("127.0.0.1", host); got != want {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
	}
	if got := ask("0.0.0.0", "sidecar:7471"); got != http.StatusOK {
		t.Errorf("on all addresses, asked by its name: %d", got)
	}
}

// TestTrust_ClientsThatReadNoMetricsCloseNothing: more clients than answers are computed at a time each leave an answer
// unread that does not fit into the connection.
func TestTrust_ClientsThatReadNoMetricsCloseNothing(t *testing.T) {
	t.Parallel()
	const idle, large = 8, 8 << 20
	asked := make(chan struct{}, idle+1)
	help := strings.Repeat("x", large)
	s, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0", Metrics: prometheus.GathererFunc(
		func() ([]*dto.MetricFamily, error) {
			asked <- struct{}{}
			r := prometheus.NewRegistry()
			r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "large", Help: help}))
			return r.Gather()
		})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var held []net.Conn
	for range idle {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("clients that do not read keep others from being answered")
		}
		if status, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(status, " 200 ") {
			t.Errorf("%q, %v", status, err)
		}
	}
	for _, conn := range held {
		_ = conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
