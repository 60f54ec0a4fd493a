// Package admin is the program's administration over HTTP: an API under /api/v1 that shows how things stand and has
// things done, and beside it whatever pages somebody mounts. Package gate lets those in whose tokens administer.
//
// Service is what can be asked and done, once for all doors: the routes of the API call its methods, and pages call the
// same. Each method finds in its context who asks (gate.CallerOf), and refuses what his token's role or pipelines do
// not allow; so a page cannot show or do more than its reader may. Its errors are Problems, or ProblemOf makes one.
//
// A browser keeps no token: POST /api/v1/session with the token answers with a cookie that scripts cannot read. Cookie
// and token are looked at by the same code, and a token that is revoked ends its sessions. What happens is told as
// server-sent events by GET /api/v1/events, and to pages by Service.Watch.
//
// A role includes those before it: viewer looks, operator also has things done to pipelines and rows, admin also sees
// the configuration and reloads plugins. A token may be for some pipelines: anyone who holds it sees and changes these
// alone. The text of a row is shown to operators and admins, and only if the configuration lets it be shown.
package admin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
)

// Options say where to listen, who may come in, and what is behind.
type Options struct {
	Listen   string       // host:port; port 0 takes a free one
	Tokens   *gate.Tokens // those of the roles that administer come in
	Cert     string       // files of a certificate and its key, in PEM; "": plain HTTP
	Key      string
	ClientCA string // file of certificates, in PEM, one of which must have signed a client's; "": clients need none

	Service *Service
	// Of is that of gate.Options, for several databases. nil: there is one.
	Of func(r *http.Request, database string) (*gate.API, http.Handler, *gate.Problem)
	// Database is that of gate.Options.
	Database string
	// Pages answers what is not the API's. nil: there are no pages.
	Pages http.Handler
	// Observe notes a request that was answered. May be nil.
	Observe func(handler, method string, status int, took time.Duration)
	Rate    int // requests a second of one token, and twice as many at once; 0: 50
	Log     *slog.Logger
}

// Bounds of what those who come in may ask for.
const (
	maxBody   = 1 << 20
	maxConns  = 256
	usualRate = 50
	// requestTime is how long an answer may take to make; events have no end.
	requestTime = 90 * time.Second
	readTimeout = 30 * time.Second
	stopTimeout = 5 * time.Second
)

// Listen opens the port. Run the server, or Close it if it never comes to that.
func Listen(ctx context.Context, o Options) (*httpserver.Server, error) {
	if o.Tokens == nil {
		return nil, errors.New("listen for administrators: there is no token")
	}
	if o.Pages == nil {
		o.Pages = http.NotFoundHandler()
	}
	c := &o.Service.config().Admin
	return gate.Listen(ctx, gate.Options{
		What: "administrators", Setting: "http.admin.listen", Begun: "administrators are answered",
		Listen: o.Listen, Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA, Tokens: o.Tokens, Administers: true,
		Base: c.BasePath, RowText: c.ShowRowText, Exact: true,
		API: NewAPI(o.Service), Pages: o.Pages, Of: o.Of, Database: o.Database, //nolint:contextcheck // requests bring their own
		Endless: eventsPath, End: o.Service.events.end, Observe: o.Observe, Log: o.Log,
		Limits: gate.Limits{
			Body: maxBody, Rate: cmp.Or(o.Rate, usualRate), Conns: maxConns, Read: readTimeout, Time: requestTime,
			Stop: stopTimeout,
		},
	})
}

// NewAPI returns the API of a Service.
func NewAPI(s *Service) *gate.API {
	a := &api{service: s, API: gate.NewAPI("administration", "Look at pipelines and rows, and have things done. Every "+
		"answer that is an error is an application/problem+json with reason, code and hints.", "admin",
		s.config().Admin.BasePath, gate.RFC9457, &s.judge)}
	a.Sessions(sessionPath)
	a.routes()
	gate.OrNull[explain.Story](a.API, "task", "ledger")
	a.Close()
	return a.API
}
