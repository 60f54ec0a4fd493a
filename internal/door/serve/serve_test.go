package serve_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	dims = 4

	// timeout limits the waits of servers and tests.
	timeout = 5 * time.Minute
)

// client opens a connection for each request, because a kept one may be closed when it is used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// toy is a model whose errors are triggered by its texts.
type toy struct {
	sparse bool

	hold chan struct{} // if set, a text "hold" waits until it is closed
	held chan struct{} // receives one value for each waiting text
}

func (m *toy) Describe(context.Context) (embed.Description, error) {
	return embed.Description{Model: "toy", Fingerprint: "toy-1", Dims: dims, Sparse: m.sparse}, nil
}

func (m *toy) Ask(ctx context.Context, kind embed.Kind, texts []string) ([]embed.Result, error) {
	results := make([]embed.Result, len(texts))
	for i, text := range texts {
		switch text {
		case "down":
			return nil, &embed.Error{
				Class: embed.Transient, Code: "unavailable", RetryAfter: 7 * time.Second,
				Err: errors.New("secret detail"),
			}
		case "broken":
			return nil, &embed.Error{Class: embed.Configuration, Code: "checksum", Err: errors.New("secret detail")}
		case "panic":
			panic("secret detail")
		case "hold":
			m.held <- struct{}{}
			select {
			case <-m.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case "refused":
			results[i].Err = &embed.TextError{Class: embed.Data, Code: "refused", Message: "the provider refuses it"}
			continue
		case "none":
			results[i].Empty = true
			continue
		}
		results[i] = embed.Result{
			Vector: vector.Of(kind.String()+" "+text, dims), Tokens: len(strings.Fields(text)),
			Truncated: strings.HasPrefix(text, "long"),
		}
	}
	return results, nil
}

// backend serves one model and one pipeline that cannot be searched.
type backend struct{ model *toy }

func (b *backend) Models(_ context.Context, only []string) ([]string, error) {
	if len(only) > 0 {
		return []string{"other/toy"}, nil
	}
	return []string{"toy", "other/toy"}, nil
}

func (b *backend) Model(ctx context.Context, only []string, name string) (query.Model, error) {
	if names, _ := b.Models(ctx, only); !slices.Contains(names, name) {
		return nil, query.ErrUnknown
	}
	return b.model, nil
}

func (b *backend) Known(ctx context.Context, only []string, name string) (*embed.Description, error) {
	m, err := b.Model(ctx, only, name)
	if err != nil {
		return nil, err
	}
	about, err := m.Describe(ctx)
	return &about, err
}

func (b *backend) PipelinesNow(ctx context.Context) ([]pipeline.Pipeline, error) {
	return b.Pipelines(ctx)
}

func (*backend) Pipelines(context.Context) ([]pipeline.Pipeline, error) {
	return []pipeline.Pipeline{{
		Spec:   pipeline.Spec{Name: "public.docs", Schema: "public", Table: "docs"},
		Status: pipeline.Missing,
	}}, nil
}

func (*backend) Ready(context.Context, *pipeline.Pipeline) (query.Model, error) {
	return nil, &search.UnavailableError{Problem: "its table is gone"}
}

func (*backend) Rules(string) config.Search { return config.Search{} }

func (*backend) DB() search.DB { return nil }

func (*backend) Score(context.Context, *pipeline.Pipeline, string, []string) ([]float32, error) {
	return nil, &search.UnavailableError{Problem: "its table is gone"}
}

// ScoreBy scores texts by their lengths.
func (*backend) ScoreBy(_ context.Context, only []string, model, _ string, texts []string) ([]float32, error) {
	if model != "" && model != "lengths" || len(only) > 0 {
		return nil, query.ErrUnknown
	}
	scores := make([]float32, len(texts))
	for i, text := range texts {
		scores[i] = float32(len(text))
	}
	return scores, nil
}

func (*backend) Explain(context.Context, *pipeline.Pipeline, string) (query.Explained, error) {
	return query.Explained{}, &search.UnavailableError{Problem: "its table is gone"}
}

// server runs until the test ends.
type server struct {
	t     *testing.T
	url   string
	addr  string
	model *toy
	token string
}

func start(t *testing.T, edit func(o *serve.Options)) *server {
	t.Helper()
	model := &toy{hold: make(chan struct{}), held: make(chan struct{}, 100)}
	o := serve.Options{Options: gate.Options{Listen: "127.0.0.1:0"}, Backend: &backend{model}}
	if edit != nil {
		edit(&o)
	}
	// Only the limits that the test is about are short.
	o.Limits.Time, o.Limits.Header, o.Limits.Stop = cmp.Or(o.Limits.Time, timeout), cmp.Or(o.Limits.Header, timeout),
		timeout
	s, err := serve.Listen(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return &server{t: t, url: "http://" + s.Addr().String(), addr: s.Addr().String(), model: model}
}

// answer is the response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem parses an error in OpenAI's format.
func (a answer) problem(t *testing.T) (code, message string) {
	t.Helper()
	var body struct {
		Error struct {
			Message, Type string
			Code, Param   *string
		}
	}
	if err := json.Unmarshal(a.body, &body); err != nil || body.Error.Message == "" || body.Error.Type == "" {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if body.Error.Code != nil {
		code = *body.Error.Code
	}
	return code, body.Error.Message
}

func (s *server) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// try is like do, for a server that may close the connection.
func (s *server) try(method, path, body string, headers ...string) (answer, error) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, read}, err
}

func TestServer_ASlowClientHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) {
		o.Limits = gate.Limits{Header: 200 * time.Millisecond, Time: 300 * time.Millisecond, Requests: 1}
	})
	for _, begin := range []string{
		"GET /v1/models HT", // a header that never ends
		"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"inp", // a body that never ends
	} {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
		// The server itself answers with an error or closes the connection; nothing else ends this read.
		if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(bufio.NewReader(conn))
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the connection is still open; it said %q", begin, rest)
		}
		if bytes.HasPrefix(rest, []byte("HTTP/1.1 200")) {
			t.Errorf("%q: %q", begin, rest)
		}
		_ = conn.Close()
	}
	// With these limits, a client that the machine delays also counts as slow.
	testenv.Eventually(t, timeout, func() (bool, string) {
		a, err := s.try("GET", "/v1/models", "")
		return err == nil && a.status == http.StatusOK, fmt.Sprintf("after slow clients: %d %s, %v", a.status, a.body, err)
	})
}

func TestServer_OneTooManyIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	s := start(t, func(o *serve.Options) {
		o.Limits = gate.Limits{Requests: 2}
		o.Observe = func(handler, method string, status int, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(handler, " ", method, " ", status)]++
		}
	})
	var held sync.WaitGroup
	for range 2 {
		held.Go(func() {
			if a := s.do("POST", "/v1/embeddings", `{"input": "hold"}`); a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
		<-s.model.held
	}
	a := s.do("GET", "/v1/models", "")
	if code, _ := a.problem(t); a.status != http.StatusServiceUnavailable || code != "overloaded" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	close(s.model.hold)
	held.Wait()
	if a := s.do("GET", "/v1/models", ""); a.status != http.StatusOK {
		t.Errorf("after that: %d %s", a.status, a.body)
	}
	s.do("GET", "/mcp", "")
	s.do("GET", "/nothing", "")
	testenv.Eventually(t, timeout, func() (bool, string) { // a client may get its answer before the request is counted
		mu.Lock()
		defer mu.Unlock()
		return seen["models GET 503"] == 1 && seen["embeddings POST 200"] == 2 && seen["models GET 200"] == 1 &&
			seen["mcp GET 405"] == 1 && seen["other GET 404"] == 1 && len(seen) == 5, fmt.Sprintf("counted %v", seen)
	})
}

func TestServer_TimesOutAndStopsInOrder(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = gate.Limits{Time: 200 * time.Millisecond} })
	testenv.Eventually(t, timeout, func() (bool, string) { // the request itself may take as long to arrive
		a, err := s.try("POST", "/v1/embeddings", `{"input": "hold"}`)
		if err != nil {
			return false, err.Error()
		}
		code, _ := a.problem(t)
		return a.status == http.StatusGatewayTimeout && code == "timeout", fmt.Sprintf("%d %s", a.status, a.body)
	})

	// A request in progress at shutdown gets its answer.
	model := &toy{hold: make(chan struct{}), held: make(chan struct{}, 1)}
	stopping, err := serve.Listen(t.Context(), serve.Options{Backend: &backend{model}, Options: gate.Options{
		Listen: "127.0.0.1:0", Limits: gate.Limits{Time: timeout, Header: timeout, Stop: timeout},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- stopping.Run(ctx) }()
	late := &server{t: t, url: "http://" + stopping.Addr().String()}
	var held sync.WaitGroup
	held.Go(func() {
		if a := late.do("POST", "/v1/embeddings", `{"input": "hold"}`); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	<-model.held
	cancel()
	testenv.Eventually(t, timeout, func() (bool, string) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", stopping.Addr().String())
		if err != nil {
			return true, ""
		}
		_ = conn.Close()
		return false, "it still takes connections"
	})
	close(model.hold)
	held.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
