// Package serve is the query side over HTTP: embeddings by the models that rows are embedded with, in the form of
// OpenAI's API, and searches of pipelines. It changes nothing. Whoever asks proves by a token that they may; without
// tokens it listens on loopback addresses only.
package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
	"github.com/embedsidecar/embedsidecar/internal/search"
	"github.com/embedsidecar/embedsidecar/internal/search/query"
)

// Backend is what is served: query.Backend tells of each.
type Backend interface {
	Models(ctx context.Context, only []string) ([]string, error)
	Model(ctx context.Context, only []string, name string) (query.Model, error)
	Known(ctx context.Context, only []string, name string) (*embed.Description, error)
	Pipelines(ctx context.Context) ([]pipeline.Pipeline, error)
	Ready(ctx context.Context, p *pipeline.Pipeline) (query.Model, error)
	Rules(name string) query.Rules
	DB() search.DB
}

// Limits bound what one client may ask for. Zero fields are the defaults.
type Limits struct {
	BodyBytes int64         // of a request; default 8 MiB
	Inputs    int           // texts of a request; default 2,048, which is also OpenAI's
	TextBytes int           // of one text; default 1 MiB
	Requests  int           // under way at a time; one above is told to come again. Default 64
	Conns     int           // open at a time; one above takes the place of one that does nothing. Default 1,024
	Memory    int64         // bytes that all requests take together, as far as their sizes tell. Default 256 MiB
	Time      time.Duration // of a request, from its first byte to its answer. Default 60 s
	Search    time.Duration // of the database's part of a search. Default 10 s
	Header    time.Duration // for a request's header. Default 5 s
	Stop      time.Duration // for requests under way when told to stop. Default 10 s
}

func (l Limits) withDefaults() Limits {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&l.Inputs, 2048)
	set(&l.TextBytes, 1<<20)
	set(&l.Requests, 64)
	set(&l.Conns, 1024)
	if l.BodyBytes == 0 {
		l.BodyBytes = 8 << 20
	}
	if l.Memory == 0 {
		l.Memory = 256 << 20
	}
	if l.Time == 0 {
		l.Time = time.Minute
	}
	if l.Search == 0 {
		l.Search = 10 * time.Second
	}
	if l.Header == 0 {
		l.Header = 5 * time.Second
	}
	if l.Stop == 0 {
		l.Stop = 10 * time.Second
	}
	return l
}

// Options say where to listen and who may ask.
type Options struct {
	Listen  string  // host:port; port 0 takes a free one
	Tokens  *Tokens // nil: anybody who reaches the address, which must be a loopback one
	Cert    string  // files of a certificate and its key, in PEM; read again when they change. "": plain HTTP
	Key     string
	Backend Backend
	Limits  Limits
	// Observe notes a request that was answered; the handler is the name of its route. May be nil.
	Observe func(handler, method string, status int, took time.Duration)
	Log     *slog.Logger // nil: silent
}

// Server listens from the moment Listen made it; Run answers.
type Server struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
	secure   bool
	stop     time.Duration
}

const (
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
	writeSlack  = 30 * time.Second // for a slow client to take its answer
)

// Listen opens the port, so that a port that is taken is known before anything else starts. Call Run, or Close if it
// never comes to that.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.withDefaults()
	if o.Tokens == nil {
		if err := checkLoopback(o.Listen); err != nil {
			return nil, err
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for queries: %w", err)
	}
	if o.Tokens == nil && !loopback.Addr(listener.Addr()) { // a name may lead anywhere
		_ = listener.Close()
		return nil, &OpenError{Address: listener.Addr().String()}
	}
	conns := httpserver.Limit(listener, o.Limits.Conns)
	listener = conns
	if o.Cert != "" || o.Key != "" {
		secure, err := TLS(o.Cert, o.Key, o.Log)
		if err != nil {
			_ = listener.Close()
			return nil, err
		}
		listener = tls.NewListener(listener, secure)
	}
	server := &http.Server{
		Handler:           Handler(o),
		ReadHeaderTimeout: o.Limits.Header,
		ReadTimeout:       o.Limits.Time,
		WriteTimeout:      o.Limits.Time + writeSlack,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	conns.Attach(server, false)
	return &Server{listener: listener, log: o.Log, secure: o.Cert != "", stop: o.Limits.Stop, http: server}, nil
}

// OpenError means that the address can be reached by others and nothing would keep them out.
type OpenError struct{ Address string }

func (e *OpenError) Error() string {
	return fmt.Sprintf("listen for queries on %s: without tokens anybody who reaches that address could ask; only a loopback address may do without", e.Address)
}

// Hints are the ways out.
func (*OpenError) Hints() []string {
	return []string{"give a file with tokens: --tokens-file FILE", "or listen on this machine only: --http 127.0.0.1:7470"}
}

// checkLoopback refuses an address that is open to others as it is written.
func checkLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen for queries: %w", err)
	}
	if host == "" || net.ParseIP(host) != nil && !loopback.Host(host) {
		return &OpenError{Address: listen}
	}
	return nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close gives the port back without having run.
func (s *Server) Close() error { return s.listener.Close() }

// Run answers until ctx ends, then lets requests under way finish for a moment. It returns nil when it was asked to
// stop.
func (s *Server) Run(ctx context.Context) error {
	s.log.InfoContext(ctx, "queries are answered", "address", s.Addr().String(), "tls", s.secure)
	if err := httpserver.Run(ctx, s.http, s.listener, s.stop, s.log); err != nil {
		return fmt.Errorf("serve queries: %w", err)
	}
	return nil
}
