package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
	"github.com/embedsidecar/embedsidecar/testenv"
	"github.com/embedsidecar/embedsidecar/testenv/logs"
)

func TestServer_AClientThatGoesGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = gate.Limits{Requests: 1} })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/embeddings",
			strings.NewReader(`{"input": "hold"}`))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			var response *http.Response
			if response, err = client.Do(r); err == nil {
				_ = response.Body.Close()
			}
		}
		gone <- err
	}()
	<-s.model.held
	if a := s.do("GET", "/v1/models", ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("while the only place is taken: %d %s", a.status, a.body)
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that went: %v", err)
	}
	testenv.Eventually(t, timeout, func() (bool, string) { // the model never answers: only the context ends the request
		a := s.do("GET", "/v1/models", "")
		return a.status == http.StatusOK, string(a.body)
	})
}

// TestServer_WhoOnlyHoldsConnectionsKeepsNobodyOut: a new connection displaces the one that has been silent longest,
// first among those of clients without a token.
func TestServer_WhoOnlyHoldsConnectionsKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, line("app", "secret"))
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) { o.Tokens, o.Limits = tokens, gate.Limits{Conns: 4} })
	s.token = "secret"
	held := make(chan answer, 1)
	go func() { // busy: it must not be displaced
		a, err := s.try("POST", "/v1/embeddings", `{"input": "hold"}`)
		if err != nil {
			t.Error(err)
		}
		held <- a
	}()
	<-s.model.held
	kept := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}} // idle, with a known token
	defer kept.CloseIdleConnections()
	ask := func(client *http.Client) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/models", http.NoBody)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer secret")
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	if err := ask(kept); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range 20 {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET /v1/models HTTP/1.1\r\nHost:"); err != nil && !errors.Is(err, syscall.EPIPE) &&
			!errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	if a := s.do("GET", "/v1/models", ""); a.status != http.StatusOK {
		t.Errorf("beside silent connections: %d", a.status)
	}
	// The first silent connection was displaced.
	if err := silent[0].SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest silent connection: %v", err)
	}
	if err := ask(kept); err != nil {
		t.Errorf("the connection of a client with a token: %v", err)
	}
	close(s.model.hold)
	if a := <-held; a.status != http.StatusOK {
		t.Errorf("the request that was under way: %d %s", a.status, a.body)
	}
}

// TestP9_LargeRequestsAreBoundedTogether: a large request that does not fit beside those in progress is rejected for a
// retry, and small ones still work.
func TestP9_LargeRequestsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = gate.Limits{Memory: 8 << 20} })
	large := `{"input": ["hold", "` + strings.Repeat("x ", 450<<10) + `"]}` // 8 MiB of memory by the budget's measure
	held := make(chan answer, 1)
	go func() {
		a, err := s.try("POST", "/v1/embeddings", large)
		if err != nil {
			t.Error(err)
		}
		held <- a
	}()
	<-s.model.held
	a := s.do("POST", "/v1/embeddings", strings.Replace(large, "hold", "go", 1))
	if code, _ := a.problem(t); a.status != http.StatusServiceUnavailable || code != "overloaded" ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("a second large request: %d %.200s", a.status, a.body)
	}
	if a := s.do("POST", "/v1/embeddings", `{"input": "small"}`); a.status != http.StatusOK {
		t.Errorf("a small request beside a large one: %d %s", a.status, a.body)
	}
	close(s.model.hold)
	if a := <-held; a.status != http.StatusOK {
		t.Errorf("the first large request: %d %.200s", a.status, a.body)
	}
	if a := s.do("POST", "/v1/embeddings", strings.Replace(large, "hold", "go", 1)); a.status != http.StatusOK {
		t.Errorf("after it: %d %.200s", a.status, a.body)
	}
}

// TestP9_LimitsAreLookedAtWhileReading: a body of many small values is rejected after little more memory than its size.
func TestP9_LimitsAreLookedAtWhileReading(t *testing.T) {
	h := serve.Handler(serve.Options{Backend: &backend{&toy{}}})
	const size = 4 << 20
	for name, c := range map[string]struct{ path, body, code string }{
		"texts": {"/v1/embeddings", `{"input": [` + strings.Repeat(`"a",`, size/4) + `"a"]}`, "too_many_inputs"},
		"nested": {
			"/v1/embeddings", `{"input": [` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `]}`,
			"tokens_not_supported",
		},
		"values": {"/v1/pipelines/public.docs/search", `{"text": "x", "filter": {"a": [` + strings.Repeat(`1,`, size/2) +
			`1]}}`, "json"},
		"conditions": {
			"/v1/pipelines/public.docs/search", `{"text": "x", "filter": {` + manyConditions(size/12) + `"z":1}}`,
			"json",
		},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+c.path,
			strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) {
			t.Errorf("%s: %d %.300s", name, w.Code, w.Body)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(10*len(c.body))+1<<20 {
			t.Errorf("%s: %d bytes were allocated for a body of %d", name, grown, len(c.body))
		}
	}
}

func manyConditions(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"c%d":1,`, i)
	}
	return b.String()
}

// searchable is a backend whose pipelines reach the database, which records the callers.
type searchable struct {
	*backend

	asked chan struct{}
	ruled chan string // pipelines whose rules were requested
	more  []string    // pipelines
}

func (b *searchable) PipelinesNow(ctx context.Context) ([]pipeline.Pipeline, error) {
	return b.Pipelines(ctx)
}

func (b *searchable) Pipelines(context.Context) (list []pipeline.Pipeline, err error) {
	for _, name := range append([]string{"public.docs", "hr: pay"}, b.more...) {
		list = append(list, pipeline.Pipeline{
			Spec: pipeline.Spec{Name: name, Schema: "public", Table: strings.TrimPrefix(name, "public.")}, Dims: dims,
			Key: []pipeline.KeyColumn{{Name: "id"}},
		})
	}
	return list, nil
}

func (b *searchable) Ready(context.Context, *pipeline.Pipeline) (query.Model, error) {
	return b.model, nil
}

func (b *searchable) Rules(name string) config.Search {
	b.ruled <- name
	return config.Search{}
}

func (b *searchable) DB() search.DB { return b }

func (b *searchable) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) {
	b.asked <- struct{}{}
	return nil, &search.RowSecurityError{Pipeline: "p", Table: "t"}
}

// TestTokens_DoNoMoreThanTheyAreFor: the roles and limits of tokens are enforced.
func TestTokens_DoNoMoreThanTheyAreFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	made := func(name string, g gate.Grant) string {
		t.Helper()
		secret, _, err := gate.CreateToken(path, name, g)
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	all := made("all", gate.Grant{Role: gate.RoleQuery})
	embeds := made("embeds", gate.Grant{Role: gate.RoleEmbed})
	pay := made("pay", gate.Grant{
		Role: gate.RoleQuery, Pipelines: []string{"hr: pay"},
		Filter: map[string][]string{"tenant:1": {"a&b", "ü=;"}}, DatabaseRole: "reader",
	})
	list, err := gate.ListTokens(path)
	if err != nil || len(list) != 3 || !reflect.DeepEqual(list[2].Filter,
		map[string][]string{"tenant:1": {"a&b", "ü=;"}}) || list[2].DatabaseRole != "reader" ||
		list[2].Pipelines[0] != "hr: pay" {
		t.Fatalf("%+v, %v", list, err)
	}
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 10)
	var log logs.Buffer
	s := start(t, func(o *serve.Options) {
		o.Tokens, o.Log = tokens, logger(&log)
		o.Backend = &searchable{backend: o.Backend.(*backend), asked: asked, ruled: make(chan string, 10)} //nolint:forcetypeassert // it is
	})
	find := "/v1/pipelines/public.docs/search"
	administers := made("administers", gate.Grant{Role: gate.RoleAdmin})
	for _, c := range []struct {
		who, token, method, path, body string
		status                         int
		code                           string
	}{
		{"all", all, "POST", "/v1/embeddings", `{"input": "x"}`, 200, ""},
		{"all", all, "POST", find, `{"text": "x"}`, 403, "row_security"}, // it reaches the database
		{"embeds", embeds, "POST", "/v1/embeddings", `{"input": "x"}`, 200, ""},
		{"embeds", embeds, "GET", "/v1/models", ``, 200, ""},
		{"embeds", embeds, "POST", find, `{"text": "x"}`, 403, "role"},
		{"embeds", embeds, "POST", "/v1/pipelines/none/similar", `{"key": "1"}`, 403, "role"},
		{"embeds", embeds, "GET", "/v1/pipelines", ``, 403, "role"},
		{"pay", pay, "POST", find, `{"text": "x"}`, 404, "pipeline_not_found"},
		{"pay", pay, "POST", "/v1/pipelines/hr:%20pay/similar", `{"key": "1"}`, 403, "row_security"},
		{"pay", pay, "POST", "/v1/embeddings", `{"input": "x"}`, 200, ""},
		{"pay", pay, "POST", "/v1/embeddings", `{"input": "x", "model": "other/toy"}`, 200, ""},
		{"pay", pay, "POST", "/v1/embeddings", `{"input": "x", "model": "toy"}`, 404, "model_not_found"},
		{"pay", pay, "GET", "/v1/models/toy", ``, 404, "model_not_found"},
		{"administers", administers, "POST", "/v1/embeddings", `{"input": "x"}`, 403, "role"},
		{"administers", administers, "GET", "/v1/pipelines", ``, 403, "role"},
	} {
		a := s.do(c.method, c.path, c.body, "Authorization", "Bearer "+c.token)
		code := ""
		if a.status >= 400 {
			code, _ = a.problem(t)
		}
		if a.status != c.status || code != c.code {
			t.Errorf("%s: %s %s: %d %s, want %d %s", c.who, c.method, c.path, a.status, a.body, c.status, c.code)
		}
	}
	if len(asked) != 2 {
		t.Errorf("the database was asked %d times, want 2", len(asked))
	}
	if !strings.Contains(log.String(), "row level security") || !strings.Contains(log.String(), "--database-role") {
		t.Errorf("the log does not tell the way out: %s", log.String())
	}
	if a := s.do("GET", "/v1/models", "", "Authorization", "Bearer "+pay); !strings.Contains(string(a.body),
		`"other/toy"`) || strings.Contains(string(a.body), `"toy"`) {
		t.Errorf("the models of a token for one pipeline: %s", a.body)
	}
	if a := s.do("GET", "/v1/pipelines", "", "Authorization", "Bearer "+pay); !strings.Contains(string(a.body),
		"hr: pay") || strings.Contains(string(a.body), "public.docs") {
		t.Errorf("the pipelines of a token for one: %s", a.body)
	}
	sum := all[:0] + strings.Repeat("0", 64)
	for _, wrong := range []string{
		"auditor:" + sum, "viewer:" + sum + ":filter.a=b", "admin:" + sum + ":pipeline=a", "query:" + sum + ":nonsense=1",
		"query:" + sum + ":pipeline=",
		"embed:" + sum + ":pipeline=a", "query:" + sum + ":%zz", "query:" + sum + ":database_role=a&database_role=b",
	} {
		write(t, path+"2", "app:"+wrong+"\n")
		if _, err := gate.ReadTokens(path+"2", nil); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// TestTokens_AFileThatOthersMayWriteIsRefused: a user who may write the file can add a token.
func TestTokens_AFileThatOthersMayWriteIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "folder", "tokens")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, line("app", "secret"))
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o620, 0o602, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"read": second(gate.ReadTokens(path, nil)), "revoke": second(gate.RevokeTokens(path, "app")),
			"create": func() error { _, _, err := gate.CreateToken(path, "other", queries); return err }(),
		} {
			if err == nil || !strings.Contains(err.Error(), "chmod go-w") {
				t.Errorf("%s, %s: %v", mode, what, err)
			}
		}
	}
	// A file that becomes writable is not read again: only its earlier tokens stay valid.
	if err := os.WriteFile(path, []byte(line("app", "secret")+line("intruder", "mine")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, known := tokens.Who("mine"); known {
		t.Error("a token that others have written is taken")
	}
	if _, known := tokens.Who("secret"); !known {
		t.Error("the token from before is not taken any more")
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.ReadTokens(path, nil); err != nil {
		t.Errorf("a file that its group may read: %v", err)
	}
	for _, folder := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		for mode, word := range map[os.FileMode]string{0o777: "chmod o-w", 0o777 | os.ModeSticky: "<nil>", 0o770: "<nil>"} {
			if err := os.Chmod(folder, mode); err != nil {
				t.Fatal(err)
			}
			if err := second(gate.ReadTokens(path, nil)); !strings.Contains(fmt.Sprint(err), word) {
				t.Errorf("in a folder %s with mode %s: %v", folder, mode, err)
			}
		}
		if err := os.Chmod(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// failing is a backend whose pipelines end in an error.
type failing struct {
	*backend

	err error
}

func (f *failing) Ready(context.Context, *pipeline.Pipeline) (query.Model, error) {
	return nil, fmt.Errorf("read pipeline: %w", f.err)
}

// A temporary error asks for a retry; a permanent one has a hint.
func TestServer_WhatTheDatabaseSaysDecidesTheStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status int
		again  bool
		words  string
	}{
		pgerrcode.LockNotAvailable:      {http.StatusServiceUnavailable, true, "retry later"},
		pgerrcode.SerializationFailure:  {http.StatusServiceUnavailable, true, "retry later"},
		pgerrcode.DeadlockDetected:      {http.StatusServiceUnavailable, true, "retry later"},
		pgerrcode.AdminShutdown:         {http.StatusServiceUnavailable, true, "retry later"},
		pgerrcode.QueryCanceled:         {http.StatusGatewayTimeout, true, "statement_timeout"},
		pgerrcode.UndefinedTable:        {http.StatusServiceUnavailable, true, "init creates it again"},
		pgerrcode.InsufficientPrivilege: {http.StatusServiceUnavailable, true, "embedsidecar roles prints"},
		pgerrcode.DataCorrupted:         {http.StatusInternalServerError, false, "the log of the server"},
	} {
		s := start(t, func(o *serve.Options) {
			o.Backend = &failing{&backend{}, &pgconn.PgError{Code: code, Message: "a row's text"}}
		})
		a := s.do("POST", "/v1/pipelines/public.docs/search", `{"text": "x"}`)
		_, message := a.problem(t)
		if again := a.header.Get("Retry-After") != ""; a.status != want.status || again != want.again ||
			!strings.Contains(message, want.words) || strings.Contains(message, "a row's") {
			t.Errorf("SQLSTATE %s: %d, come again %t, %q; want %+v", code, a.status, again, message, want)
		}
	}
}

// TestTrust_BodiesOfOneTokenCloseNothing: endless bodies of one token take only the slots and the memory of that token.
func TestTrust_BodiesOfOneTokenCloseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, line("app", "secret")+line("slow", "other"))
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *serve.Options) {
		o.Tokens, o.Limits = tokens, gate.Limits{Requests: 8, Conns: 64, Memory: 32 << 20, Body: 4 << 20}
	})
	held := make([]net.Conn, 100)
	for i := range held {
		var dialer net.Dialer
		if held[i], err = dialer.DialContext(t.Context(), "tcp", s.addr); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = held[i].Close() }()
		// A request beyond the limit of a token is ended while it is written.
		_, _ = fmt.Fprintf(held[i], "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer other\r\nContent-Length: %d\r\n\r\n{", 4<<20-10)
	}
	testenv.Eventually(t, timeout, func() (bool, string) {
		a, err := s.try("GET", "/v1/models", "", "Authorization", "Bearer other")
		return err == nil && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable) &&
			a.header.Get("Retry-After") != "", fmt.Sprintf("%d %v", a.status, err)
	})
	large := `{"input": ["small", "` + strings.Repeat("x ", 100<<10) + `"]}`
	a := s.do("POST", "/v1/embeddings", large, "Authorization", "Bearer secret")
	if a.status != http.StatusOK {
		t.Errorf("beside bodies of another that do not end: %d %.300s", a.status, a.body)
	}
	for _, conn := range held {
		_ = conn.Close()
	}
	testenv.Eventually(t, timeout, func() (bool, string) {
		a, err := s.try("GET", "/v1/models", "", "Authorization", "Bearer other")
		return err == nil && a.status == http.StatusOK, fmt.Sprintf("%d %s %v", a.status, a.body, err)
	})
}
