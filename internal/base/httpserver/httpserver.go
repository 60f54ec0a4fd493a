// Package httpserver runs the program's HTTP listeners, with a graceful shutdown.
package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
	"github.com/embedsidecar/embedsidecar/internal/base/wrap"
)

// Options are the address, handler and limits of a server.
type Options struct {
	What     string // what it serves, such as "queries"; for errors
	Setting  string // the setting with the address; for errors
	Begun    string // log message when it is ready
	Listen   string // host:port; port 0 picks a free one
	Cert     string // files of a certificate and its key, in PEM; reloaded when they change. "": plain HTTP
	Key      string
	ClientCA string // file of CA certificates, in PEM, for client certificates; "": clients need none
	// Handler makes the handler, given the listen address.
	Handler func(at net.Addr) http.Handler
	// Everybody means that any request identifies its client. Otherwise the handler calls Known.
	Everybody bool
	Conns     int           // open at the same time; a new one replaces an idle one
	Header    time.Duration // for a request's header
	Read      time.Duration // for a request
	Write     time.Duration // from a request's header to the end of its response
	Stop      time.Duration // for requests in progress at shutdown
	End       func()        // ends endless responses. May be nil
	Log       *slog.Logger
}

const (
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
)

// Server listens as soon as Listen returns; Run serves.
type Server struct {
	o        Options
	listener net.Listener
	http     *http.Server
}

// Listen opens the port, so that a port in use is noticed before anything else starts. The caller must call Run or
// Close.
func Listen(ctx context.Context, o Options) (*Server, error) {
	secure, err := secured(&o)
	if err != nil {
		return nil, fmt.Errorf("listen for %s (%s): %w", o.What, o.Setting, err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for %s (%s): %w", o.What, o.Setting, err)
	}
	conns := limit(listener, o.Conns)
	server := &http.Server{
		Handler:           o.Handler(listener.Addr()),
		ReadHeaderTimeout: o.Header,
		ReadTimeout:       o.Read,
		WriteTimeout:      o.Write,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	if o.End != nil {
		server.RegisterOnShutdown(o.End)
	}
	conns.attach(server, o.Everybody)
	s := &Server{o: o, listener: conns, http: server}
	if secure != nil {
		s.listener = tls.NewListener(conns, secure)
	}
	return s, nil
}

// Addr returns the listen address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Secure reports whether it is HTTPS.
func (s *Server) Secure() bool { return s.o.Cert != "" }

// Close closes the port if Run was not called.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends, then waits briefly for requests in progress. It returns nil after a shutdown.
func (s *Server) Run(ctx context.Context) error {
	s.o.Log.InfoContext(ctx, s.o.Begun, "address", s.Addr().String(), "tls", s.Secure()) //nolint:sloglint // each listener has one
	return wrap.Errorf(Run(ctx, s.http, s.listener, s.o.Stop, s.o.Log), "answer %s", s.o.What)
}

// Start serves in the background, even after ctx ends. The returned function shuts the server down gracefully, and may
// be called again.
func (s *Server) Start(ctx context.Context) (finish func() error) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(serving) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// Run serves until ctx ends, then waits for requests in progress for gracePeriod, and logs if that was not enough. It
// returns nil after a shutdown.
func Run(ctx context.Context, server *http.Server, listener net.Listener, gracePeriod time.Duration,
	log *slog.Logger,
) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The context has ended; requests in progress get gracePeriod.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), gracePeriod)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		log.WarnContext(ctx, "closed connections that did not end in time", "address", listener.Addr().String(),
			"timeout", gracePeriod.String())
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// NamesThisMachine reports whether the Host of a request is localhost or a loopback address. Otherwise a web page could
// point its own host name to this machine, and read the responses (DNS rebinding).
func NamesThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return loopback.Host(strings.Trim(host, "[]"))
}

// secured returns the TLS configuration of a listener, with a certificate that is reloaded when its files change, and
// the CA for client certificates; nil: plain HTTP.
func secured(o *Options) (*tls.Config, error) {
	switch {
	case o.Cert == "" && o.Key == "" && o.ClientCA != "":
		return nil, errors.New("certificates of clients need one of the server's")
	case o.Cert == "" && o.Key == "":
		return nil, nil
	case o.Cert == "" || o.Key == "":
		return nil, errors.New("a certificate and a key belong together")
	}
	pair := &Files[*tls.Certificate]{Paths: []string{o.Cert, o.Key}, Log: o.Log}
	pair.Parse = func(content [][]byte) (*tls.Certificate, error) {
		found, err := tls.X509KeyPair(content[0], content[1])
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and key %s: %w", o.Cert, o.Key, err)
		}
		if now := time.Now(); now.Before(found.Leaf.NotBefore) || now.After(found.Leaf.NotAfter) {
			o.Log.Warn("clients refuse this certificate: it is not valid now", "file", o.Cert, "valid_from",
				found.Leaf.NotBefore, "valid_until", found.Leaf.NotAfter)
		}
		return &found, nil
	}
	if err := pair.Load(); err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Now(), nil },
	}
	if o.ClientCA == "" {
		return config, nil
	}
	pem, err := readSmall(o.ClientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM: no client could connect", o.ClientCA)
	}
	return config, nil
}
