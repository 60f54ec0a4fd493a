// Package admin is the program's administration over HTTP, on a listener of its own: an API under /api/v1 that shows
// how things stand and has things done, and beside it whatever pages somebody mounts. Nobody gets in without a token,
// on a loopback address neither.
//
// For those who mount pages, or add to the API:
//
//   - Service is what can be asked and done, once for all doors: the routes of the API call its methods, and pages call
//     the same. Each method finds in its context who asks (CallerOf), and refuses what his token's role or pipelines do
//     not allow; so a page cannot show or do more than its reader may. Its errors are Problems, or ProblemOf makes one.
//   - Options.Pages is mounted at "/" and answers every path that is not the API's. It is called for those who have
//     shown no token, too: then CallerOf finds nobody, and a page can do no more than ask for one.
//   - A browser keeps no token: POST /api/v1/session with the token (Authorization: Bearer) answers with a cookie that
//     scripts cannot read, for SessionTime; GET tells who one is, DELETE ends it. Cookie and token are looked at by the
//     same code, and a token that is revoked ends its sessions. What a page of another site sends is refused.
//   - What happens is told as server-sent events by GET /api/v1/events, and to pages by Service.Watch.
//
// A role includes those before it: viewer looks, operator also has things done to pipelines and rows, admin also sees
// the configuration and reloads plugins. A token may be for some pipelines: whoever holds it sees and changes these
// alone. The text of a row is shown to operators and admins, and only if the configuration lets it be shown.
package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// Options say where to listen, who may come in, and what is behind.
type Options struct {
	Listen   string        // host:port; port 0 takes a free one
	Tokens   *serve.Tokens // those of the roles that administer come in
	Cert     string        // files of a certificate and its key, in PEM; "": plain HTTP
	Key      string
	ClientCA string // file of certificates, in PEM, one of which must have signed a client's; "": clients need none

	Service *Service
	// Pages answers what is not the API's. nil: there are no pages.
	Pages http.Handler
	// Observe notes a request that was answered. May be nil.
	Observe func(handler, method string, status int, took time.Duration)
	Rate    int           // requests a second of one token, and twice as many at once; 0: 50
	Stop    time.Duration // for requests under way when told to stop
	Log     *slog.Logger
}

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	// requestTime is how long an answer may take to make; events have no end.
	requestTime = 90 * time.Second
	writeSlack  = 30 * time.Second // for a slow client to take it
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
	maxConns    = 256
	stopTimeout = 5 * time.Second
	maxCAFile   = 1 << 20
)

// Server listens from the moment Listen made it; Run answers.
type Server struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
	secure   bool
	stop     time.Duration
}

// Listen opens the port, so that a port that is taken is known before anything else starts. Call Run, or Close if it
// never comes to that.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Tokens == nil {
		return nil, errors.New("listen for administrators: nobody has a token")
	}
	if o.Stop == 0 {
		o.Stop = stopTimeout
	}
	if o.Rate == 0 {
		o.Rate = usualRate
	}
	var secure *tls.Config
	if o.Cert != "" || o.Key != "" {
		var err error
		if secure, err = serve.TLS(o.Cert, o.Key, o.Log); err != nil {
			return nil, err
		}
	}
	if o.ClientCA != "" {
		if secure == nil {
			return nil, errors.New("listen for administrators: certificates of clients need one of the server's")
		}
		if err := demandClients(secure, o.ClientCA); err != nil {
			return nil, fmt.Errorf("listen for administrators: %w", err)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for administrators: %w", err)
	}
	conns := httpserver.Limit(listener, maxConns)
	listener = conns
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	handler, closing := newHandler(o, secure != nil) //nolint:contextcheck // requests bring their own
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      requestTime + writeSlack,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(closing) // events have no end of their own
	conns.Attach(server, false)
	return &Server{listener: listener, http: server, log: o.Log, secure: secure != nil, stop: o.Stop}, nil
}

// demandClients lets in only clients that show a certificate signed by one of a file.
func demandClients(secure *tls.Config, file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() > maxCAFile {
		return fmt.Errorf("%s: %d bytes are too many", file, info.Size())
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	secure.ClientCAs, secure.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !secure.ClientCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate in PEM: no client could come in", file)
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
	s.log.InfoContext(ctx, "administrators are answered", "address", s.Addr().String(), "tls", s.secure)
	if err := httpserver.Run(ctx, s.http, s.listener, s.stop, s.log); err != nil {
		return fmt.Errorf("serve administrators: %w", err)
	}
	return nil
}
