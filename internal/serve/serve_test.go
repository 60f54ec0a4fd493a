package serve_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/serve"
	"github.com/embedsidecar/embedsidecar/plugins/fake/vector"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	dims = 4

	// patience is how long servers and tests wait for what takes a moment.
	patience = 5 * time.Minute
)

// client makes a connection for each request: one that was kept may end at the moment when it is used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// toy is a model whose faults are in its texts.
type toy struct {
	sparse bool

	hold chan struct{} // not nil: a text "hold" waits until it is closed
	held chan struct{} // gets one value for each text that waits
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

func (b *backend) Model(ctx context.Context, only []string, name string) (serve.Model, error) {
	if names, _ := b.Models(ctx, only); !slices.Contains(names, name) {
		return nil, serve.ErrUnknown
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

func (*backend) Pipelines(context.Context) ([]pipeline.Pipeline, error) {
	return []pipeline.Pipeline{{
		Spec:   pipeline.Spec{Name: "public.docs", Schema: "public", Table: "docs"},
		Status: pipeline.Missing,
	}}, nil
}

func (*backend) Pipeline(_ context.Context, name string) (*pipeline.Pipeline, serve.Model, error) {
	if name != "public.docs" {
		return nil, nil, serve.ErrUnknown
	}
	return nil, nil, &serve.UnavailableError{Problem: "its table is gone"}
}

func (*backend) Rules(string) serve.Rules { return serve.Rules{} }

func (*backend) DB() search.DB { return nil }

// server is one that runs until the test ends.
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
	o := serve.Options{Listen: "127.0.0.1:0", Backend: &backend{model}}
	if edit != nil {
		edit(&o)
	}
	// Only those limits are short that the test is about.
	o.Limits.Time, o.Limits.Header, o.Limits.Stop = cmp.Or(o.Limits.Time, patience), cmp.Or(o.Limits.Header, patience),
		patience
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

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem reads an error in OpenAI's form.
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

// try is do for a server that may hang up.
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

func TestEmbeddings_InBothForms(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	type body struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	for _, format := range []string{"", "float", "base64"} {
		for _, kind := range []string{"", "document", "query"} {
			a := s.do("POST", "/v1/embeddings",
				fmt.Sprintf(`{"input": ["one two", "three"], "model": "toy", "encoding_format": %q, "input_type": %q, "user": "x"}`,
					format, kind))
			var got body
			if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK {
				t.Fatalf("%d %s: %v", a.status, a.body, err)
			}
			if got.Object != "list" || got.Model != "toy" || len(got.Data) != 2 || got.Usage.Prompt != 3 ||
				got.Usage.Total != 3 {
				t.Errorf("%s", a.body)
			}
			word := kind
			if word == "" {
				word = "document"
			}
			for i, text := range []string{"one two", "three"} {
				want := vector.Of(word+" "+text, dims)
				var have []float32
				if format == "base64" {
					have = unpacked(t, got.Data[i].Embedding)
				} else if err := json.Unmarshal(got.Data[i].Embedding, &have); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(have) != fmt.Sprint(want) || got.Data[i].Index != i || got.Data[i].Object != "embedding" {
					t.Errorf("%s %s: text %d is %v, want %v", format, kind, i, have, want)
				}
			}
		}
	}
	if a := s.do("POST", "/v1/embeddings", `{"input": "long text", "dimensions": 4}`); a.status != http.StatusOK ||
		a.header.Get("X-Embedsidecar-Truncated") != "1" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
}

func unpacked(t *testing.T, raw json.RawMessage) []float32 {
	t.Helper()
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != 4*dims {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	v := make([]float32, dims)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

const (
	embeddings = "/v1/embeddings"
	rows       = "/v1/pipelines/public.docs/"
)

// wrongRequests are answered with a status and a code. A body may have 2,000 bytes, 3 inputs and texts of 100 bytes.
var wrongRequests = []struct {
	method, path, body string
	status             int
	code               string
}{
	{"POST", embeddings, `{"input": [1, 2]}`, 400, "tokens_not_supported"},
	{"POST", embeddings, `{"input": [[1, 2], [3]]}`, 400, "tokens_not_supported"},
	{"POST", embeddings, `{"input": {"text": "x"}}`, 400, "type"},
	{"POST", embeddings, `{"input": ["x", null]}`, 400, "type"},
	{"POST", embeddings, `{"input": 7}`, 400, "type"},
	{"POST", embeddings, `{"input": []}`, 400, "empty"},
	{"POST", embeddings, `{"input": ""}`, 400, "empty"},
	{"POST", embeddings, `{"input": "none"}`, 400, "empty"},
	{"POST", embeddings, `{}`, 400, "missing"},
	{"POST", embeddings, `{"input": ["a","b","c","d"]}`, 400, "too_many_inputs"},
	{"POST", embeddings, `{"input": "` + strings.Repeat("x", 101) + `"}`, 400, "too_long"},
	{"POST", embeddings, `{"input": "` + strings.Repeat("x", 3000) + `"}`, 413, "request_too_large"},
	{"POST", embeddings, `{"input": "x", "model": "gpt"}`, 404, "model_not_found"},
	{"POST", embeddings, `{"input": "x", "model": 7}`, 400, "type"},
	{"POST", embeddings, `{"input": "x", "dimensions": 2}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x", "encoding_format": "hex"}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x", "input_type": "poem"}`, 400, "invalid_value"},
	{"POST", embeddings, `{"input": "x"} {}`, 400, "json"},
	{"POST", embeddings, `{"input": "x"`, 400, "json"},
	{"POST", embeddings, `nonsense`, 400, "json"},
	{"POST", embeddings, `[]`, 400, "type"},
	{"POST", embeddings, "{\"input\": \"caf\xe9\"}", 400, "utf8"},
	{"POST", rows + "search", "{\"text\": \"caf\xe9\"}", 400, "utf8"},
	{"GET", rows + "search?text=x", ``, 404, "unknown_url"}, // no model works by GET
	{"GET", rows + "similar?key=1", ``, 404, "unknown_url"},
	{"POST", embeddings, `{"input": "refused"}`, 400, "refused"},
	{"POST", embeddings, `{"input": "down"}`, 503, "unavailable"},
	{"POST", embeddings, `{"input": "broken"}`, 500, "checksum"},
	{"POST", embeddings, `{"input": "panic"}`, 500, "internal"},
	{"GET", embeddings, ``, 404, "unknown_url"},
	{"GET", "/", ``, 404, "unknown_url"},
	{"GET", "/v1/models/none", ``, 404, "model_not_found"},
	{"POST", rows + "search", `{"text": "x"}`, 503, "unavailable"},
	{"POST", rows + "search", `{}`, 400, "missing"},
	{"POST", rows + "search", `{"text": "x", "k": 0}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "k": 1001}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "language": "english"}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x\u0000"}`, 400, "invalid_value"},
	{"POST", rows + "search", `{"text": "x", "filter": {"a": {"b": 1}}}`, 400, "json"},
	{"POST", rows + "search", `{"text": "x", "filter": {"a": ["b", "\u0000"]}}`, 400, "invalid_value"},
	{"POST", rows + "similar", `{}`, 400, "missing"},
	{"POST", rows + "similar", `{"key": "1", "text": "x"}`, 400, "invalid_value"},
	{"POST", rows + "similar", `{"key": {"id": 1}}`, 400, "type"},
	{"POST", rows + "similar", `{"key": [1]}`, 400, "type"},
	{"POST", rows + "similar", `{"key": true}`, 400, "type"},
	{"POST", rows + "search", `{"text": "x", "filters": {"tenant": 7}}`, 400, "unknown_parameter"},
	{"POST", "/v1/pipelines/none/search", `{"text": "x"}`, 404, "pipeline_not_found"},
}

func TestRequests_ThatAreWrong(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = serve.Limits{BodyBytes: 2000, Inputs: 3, TextBytes: 100} })
	for _, c := range wrongRequests {
		a := s.do(c.method, c.path, c.body)
		code, message := a.problem(t)
		if a.status != c.status || code != c.code {
			t.Errorf("%s %s %.60s: %d %s (%s), want %d %s", c.method, c.path, c.body, a.status, code, message, c.status, c.code)
		}
		if code == "unknown_url" && c.path != "/" && !strings.Contains(message, ": it takes POST") {
			t.Errorf("%s %s: %s", c.method, c.path, message)
		}
		if strings.Contains(string(a.body), "secret detail") {
			t.Errorf("%s %.60s tells a client too much: %s", c.path, c.body, a.body)
		}
		if c.code == "unavailable" && a.header.Get("Retry-After") == "" {
			t.Errorf("%s %.60s: no Retry-After", c.path, c.body)
		}
	}
	if a := s.do("POST", embeddings, `{"input":"x"}`, "Content-Type",
		"text/plain"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a body of another type: %d %s", a.status, a.body)
	}
	if a := s.do("POST", embeddings, "\x1f\x8b\x08", "Content-Encoding",
		"gzip"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a compressed body: %d %s", a.status, a.body)
	}
	if a := s.do("POST", embeddings, `{"input":"x"}`, "Origin", "https://elsewhere.example", "Sec-Fetch-Site",
		"cross-site"); a.status != http.StatusForbidden {
		t.Errorf("a page from elsewhere asks: %d %s", a.status, a.body)
	}
	for _, site := range []string{"cross-site", "same-site"} { // another port of this machine is the same site
		if a := s.do("GET", "/v1/models/toy", "", "Sec-Fetch-Site", site); a.status != http.StatusForbidden {
			t.Errorf("an image in a page from elsewhere, %s: %d %s", site, a.status, a.body)
		}
	}
	if a := s.do("GET", "/v1/models/toy", "", "Origin", "https://elsewhere.example"); a.status != http.StatusForbidden {
		t.Errorf("a page from elsewhere in an old browser: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models", "", "Host", "elsewhere.example"); a.status != http.StatusForbidden {
		t.Errorf("another name for this address: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models", "", "X-Request-Id", "mine-7"); a.header.Get("X-Request-Id") != "mine-7" {
		t.Errorf("request id %q", a.header.Get("X-Request-Id"))
	}
	if a := s.do("GET", "/v1/models/other/toy", ""); a.status != http.StatusOK ||
		!bytes.Contains(a.body, []byte(`"dims":4`)) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestEmbeddings_ASparseModelHasNone(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.model.sparse = true
	a := s.do("POST", "/v1/embeddings", `{"input": "x"}`)
	if code, message := a.problem(t); a.status != 400 || code != "sparse_model" || !strings.Contains(message,
		"/v1/pipelines/NAME/search") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/models/toy", ""); !bytes.Contains(a.body, []byte(`"sparse":true`)) {
		t.Errorf("%s", a.body)
	}
}

func line(name, token string) string {
	sum := sha256.Sum256([]byte(token))
	return name + ":query:" + hex.EncodeToString(sum[:]) + "\n"
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestTokens_OnlyThoseOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "# who may ask\n\n"+line("app", "first token"))
	tokens, err := serve.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) { o.Tokens = tokens })
	asks := func(header string) int {
		t.Helper()
		a := s.do("GET", "/v1/models", "", "Authorization", header)
		if a.status == http.StatusUnauthorized {
			if code, _ := a.problem(t); code != "invalid_api_key" || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %v", a.body, a.header)
			}
		}
		return a.status
	}
	sum := sha256.Sum256([]byte("first token"))
	for header, want := range map[string]int{
		"Bearer first token": 200, "bearer first token": 200, "Bearer second": 401, "Bearer ": 401, "": 401,
		"Basic Zmlyc3Q6dG9rZW4=":               401,
		"Bearer " + hex.EncodeToString(sum[:]): 401, "first token": 401,
	} {
		if got := asks(header); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
	if a := s.do("GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("a probe needs a token: %d", a.status)
	}

	write(t, path, line("app", "second token"))
	testenv.Eventually(t, patience, func() (bool, string) {
		return asks("Bearer second token") == 200, "the new token is not taken"
	})
	if got := asks("Bearer first token"); got != 401 {
		t.Errorf("the token that was taken out: %d", got)
	}
	write(t, path, "app:query:not a hash\n") // in the middle of an edit
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		if got := asks("Bearer second token"); got != 200 {
			t.Fatalf("a file that is wrong took away a token: %d", got)
		}
	}
}

func TestReadTokens_NamesTheLineAndNotTheToken(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"":                              "no token",
		"\n \n":                         "no token",
		"sk-my-secret\n":                "line 1",
		"\nname:query:sk-my-secret":     "line 2",
		"name:king:" + line("", "")[7:]: "role",
		":query:" + line("", "")[7:]:    "line 1",
	} {
		path := filepath.Join(t.TempDir(), "tokens")
		write(t, path, content)
		_, err := serve.ReadTokens(path, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sk-my-secret") {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

func TestListen_WithoutTokensOnlyOnLoopback(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:7470"} {
		s, err := serve.Listen(t.Context(), serve.Options{Listen: address, Backend: &backend{}})
		var open *serve.OpenError
		if !errors.As(err, &open) || len(open.Hints()) == 0 {
			t.Errorf("%s: %v", address, err)
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

func TestServer_ASlowClientHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) {
		o.Limits = serve.Limits{Header: 200 * time.Millisecond, Time: 300 * time.Millisecond, Requests: 1}
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
		// The server answers with an error or hangs up, and by itself: nothing else ends this read.
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
	// At these limits a client that the machine forgets for a moment is a slow one, too.
	testenv.Eventually(t, patience, func() (bool, string) {
		a, err := s.try("GET", "/v1/models", "")
		return err == nil && a.status == http.StatusOK, fmt.Sprintf("after slow clients: %d %s, %v", a.status, a.body, err)
	})
}

func TestServer_OneTooManyIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	s := start(t, func(o *serve.Options) {
		o.Limits = serve.Limits{Requests: 2}
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
	testenv.Eventually(t, patience, func() (bool, string) { // a client may have its answer before it is counted
		mu.Lock()
		defer mu.Unlock()
		return seen["models GET 503"] == 1 && seen["embeddings POST 200"] == 2 && seen["models GET 200"] == 1 &&
			len(seen) == 3, fmt.Sprintf("counted %v", seen)
	})
}

func TestServer_TimesOutAndStopsInOrder(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = serve.Limits{Time: 200 * time.Millisecond} })
	testenv.Eventually(t, patience, func() (bool, string) { // the request itself may take as long to arrive
		a, err := s.try("POST", "/v1/embeddings", `{"input": "hold"}`)
		if err != nil {
			return false, err.Error()
		}
		code, _ := a.problem(t)
		return a.status == http.StatusGatewayTimeout && code == "timeout", fmt.Sprintf("%d %s", a.status, a.body)
	})

	// A request under way when the server is told to stop gets its answer.
	model := &toy{hold: make(chan struct{}), held: make(chan struct{}, 1)}
	stopping, err := serve.Listen(t.Context(), serve.Options{
		Listen: "127.0.0.1:0", Backend: &backend{model}, Limits: serve.Limits{
			Time: patience, Header: patience,
			Stop: patience,
		},
	})
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
	testenv.Eventually(t, patience, func() (bool, string) {
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
