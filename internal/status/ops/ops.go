// Package ops is the small HTTP listener for probes and scrapers: /livez, /readyz, /metrics and /version. It answers
// only GET and HEAD and changes nothing, so it needs no authentication. It listens only on the configured address.
package ops

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/fault/problem"
)

// Check is one readiness condition.
type Check struct {
	Name string // short and fixed: "database", "stream", "plugin onnx"
	Err  error  // nil: the condition holds. Its text is shown to the caller, so it holds no password and no row's text
	// Aside: the check is shown but does not affect readiness, because it concerns one pipeline of several.
	Aside bool
}

// Options configure the listener.
type Options struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// Ready returns all checks, in display order. It must answer within the request's context and from known state: a
	// probe must not query the database. nil: always ready.
	Ready func(ctx context.Context) []Check
	// Metrics is served at /metrics. nil: no metrics.
	Metrics prometheus.Gatherer
	// Version is served at /version as JSON.
	Version any
	Log     *slog.Logger // nil: silent
}

// Time limits for clients. A slower probe is an attack or a dead connection.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second // to compute a scrape
	readerTime    = 10 * time.Second // for the client to read it
	stopTimeout   = 3 * time.Second
	readyTimeout  = 5 * time.Second
	maxConns      = 128
)

// Listen opens the port first, so that a port in use is reported before anything else starts.
func Listen(ctx context.Context, o Options) (*httpserver.Server, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return httpserver.Listen(ctx, httpserver.Options{
		What: "probes and metrics", Setting: "http.ops.listen", Begun: "probes and metrics listen",
		Listen: o.Listen, Everybody: true, Conns: maxConns,
		Header: headerTimeout, Read: readTimeout, Write: writeTimeout, Stop: stopTimeout, Log: o.Log,
		Handler: func(at net.Addr) http.Handler { return handlerAt(at, Handler(o)) },
	})
}

// handlerAt rejects requests whose Host names another machine: a listener on a loopback address serves this machine,
// not web pages that reach it by a DNS name of their own.
func handlerAt(at net.Addr, h http.Handler) http.Handler {
	if !loopback.Addr(at) {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !httpserver.NamesThisMachine(r.Host) { // some probes send no Host; browsers always do
			plain(w, http.StatusForbidden, "only requests to localhost are answered\n")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Handler returns the handler, for use with another listener.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		var checks []Check
		if o.Ready != nil {
			ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
			defer cancel()
			checks = o.Ready(ctx)
		}
		status, text := readiness(checks, r.URL.Query().Has("verbose"))
		plain(w, status, text)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.MarshalIndent(o.Version, "", "  ")
		if err != nil {
			plain(w, http.StatusInternalServerError, "the version cannot be shown\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	if o.Metrics != nil {
		metrics := promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
			MaxRequestsInFlight: 4,
			ErrorHandling:       promhttp.ContinueOnError,
		})
		mux.Handle("GET /metrics", gathered(metrics))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "embedsidecar\n\n/livez\n/readyz?verbose\n/metrics\n/version\n")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// gathered computes the whole answer before it sends any of it, so a client that reads slowly does not hold a slot of
// the handler.
func gathered(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &answer{header: w.Header(), status: http.StatusOK}
		h.ServeHTTP(made, r)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readerTime)) // otherwise writeTimeout applies
		w.WriteHeader(made.status)
		_, _ = w.Write(made.body.Bytes())
	})
}

type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// readiness formats the checks like Kubernetes' own probes.
func readiness(checks []Check, verbose bool) (status int, text string) {
	status = http.StatusOK
	var b strings.Builder
	for _, c := range checks {
		if c.Err != nil {
			if !c.Aside {
				status = http.StatusServiceUnavailable
			}
			fmt.Fprintf(&b, "[-]%s: %s\n", c.Name, strings.ReplaceAll(c.Err.Error(), "\n", " "))
		} else if verbose {
			fmt.Fprintf(&b, "[+]%s ok\n", c.Name)
		}
	}
	switch {
	case status != http.StatusOK:
		b.WriteString("not ready\n")
	case verbose:
		b.WriteString("ready\n")
	default:
		b.WriteString("ok\n")
	}
	return status, b.String()
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

const (
	askTimeout = 3 * time.Second
	maxAnswer  = 64 << 10 // some lines of text
)

// Ask asks the listener of this machine whether it is alive, or ready, and returns its answer. listen is as in Options.
// It gives up after 3 s, or earlier if ctx ends. It returns an error if the answer is negative or missing.
func Ask(ctx context.Context, listen string, ready bool) (answer []byte, err error) {
	address, err := askedAt(listen)
	if err != nil {
		return nil, err
	}
	path := "/livez"
	if ready {
		path = "/readyz"
	}
	// A context of the caller with a deadline keeps its own cause.
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("no answer in %s", askTimeout))
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", address, err)
	}
	// Not the default transport: a proxy from the environment must not be used for this machine.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, problem.New(problem.Timeout, fmt.Errorf("ask http://%s%s: %w", address, path, context.Cause(ctx)))
	case err != nil:
		return nil, problem.New(problem.Connect, fmt.Errorf("ask http://%s%s: %w", address, path, errors.Unwrap(err)))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, problem.New(problem.Timeout, fmt.Errorf("read the answer of http://%s%s: %w", address, path, err))
	}
	if response.StatusCode != http.StatusOK {
		return nil, problem.New(problem.Failed, fmt.Errorf("%s answers %d: %s", path, response.StatusCode,
			strings.ReplaceAll(strings.TrimSpace(string(body)), "\n", "; ")))
	}
	return body, nil
}

// askedAt returns the address to ask: the loopback address for a listener on all addresses.
func askedAt(listen string) (string, error) {
	if listen == "" {
		return "", problem.New(problem.Usage, errors.New("no listener for probes is configured"),
			"set EMBEDSIDECAR_OPS_LISTEN, for example to 127.0.0.1:7471, or give --ops-listen, to run and to healthcheck")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", problem.New(problem.Usage, fmt.Errorf("--ops-listen: %w", err))
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
