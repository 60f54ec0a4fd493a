package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/embedsidecar/embedsidecar/pipeline"
	"github.com/embedsidecar/embedsidecar/serve"
	"github.com/embedsidecar/embedsidecar/testenv"
)

func TestServer_AClientThatGoesGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = serve.Limits{Requests: 1} })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/embeddings", strings.NewReader(`{"input": "hold"}`))
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
	testenv.Eventually(t, patience, func() (bool, string) { // the model's answer is never given: only the context ends it
		a := s.do("GET", "/v1/models", "")
		return a.status == http.StatusOK, string(a.body)
	})
}

func TestServer_AConnectionTooManyWaitsForOneToEnd(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *serve.Options) { o.Limits = serve.Limits{Conns: 2} })
	var silent []net.Conn
	for range 2 {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		silent = append(silent, conn)
	}
	answered := make(chan int, 1)
	go func() { answered <- s.do("GET", "/v1/models", "").status }()
	select {
	case status := <-answered: // nothing can answer before a connection ends, however fast or slow this machine is
		t.Errorf("a third connection was answered: %d", status)
	case <-time.After(100 * time.Millisecond):
	}
	_ = silent[0].Close()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("after one has ended: %d", status)
	}
}

// failing is a backend whose pipelines end in an error.
type failing struct {
	*backend

	err error
}

func (f *failing) Pipeline(context.Context, string) (*pipeline.Pipeline, serve.Model, error) {
	return nil, nil, fmt.Errorf("read pipeline: %w", f.err)
}

// What passes by itself is worth another try, and what does not is told with its way out.
func TestServer_WhatTheDatabaseSaysDecidesTheStatus(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status int
		again  bool
		words  string
	}{
		pgerrcode.LockNotAvailable:      {http.StatusServiceUnavailable, true, "come again"},
		pgerrcode.SerializationFailure:  {http.StatusServiceUnavailable, true, "come again"},
		pgerrcode.DeadlockDetected:      {http.StatusServiceUnavailable, true, "come again"},
		pgerrcode.AdminShutdown:         {http.StatusServiceUnavailable, true, "come again"},
		pgerrcode.QueryCanceled:         {http.StatusGatewayTimeout, true, "statement_timeout"},
		pgerrcode.UndefinedTable:        {http.StatusServiceUnavailable, true, "init makes it again"},
		pgerrcode.InsufficientPrivilege: {http.StatusServiceUnavailable, true, "embedsidecar roles prints"},
		pgerrcode.DataCorrupted:         {http.StatusInternalServerError, false, "the log of the server"},
	} {
		s := start(t, func(o *serve.Options) {
			o.Backend = &failing{&backend{}, &pgconn.PgError{Code: code, Message: "a row's text"}}
		})
		a := s.do("POST", "/v1/pipelines/public.docs/search", `{"text": "x"}`)
		_, message := a.problem(t)
		if again := a.header.Get("Retry-After") != ""; a.status != want.status || again != want.again || !strings.Contains(message, want.words) || strings.Contains(message, "a row's") {
			t.Errorf("SQLSTATE %s: %d, come again %t, %q; want %+v", code, a.status, again, message, want)
		}
	}
}
