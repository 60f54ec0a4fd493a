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
	"net/http"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/manage/explain"
)

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

// Listen opens the port for administrators, whose tokens o has, to a Service and to pages beside it. Run the server, or
// Close it if it never comes to that.
func Listen(ctx context.Context, s *Service, o gate.Options) (*httpserver.Server, error) {
	if o.Tokens == nil {
		return nil, errors.New("listen for administrators: there is no token")
	}
	if o.Pages == nil {
		o.Pages = http.NotFoundHandler()
	}
	c := &s.config().Admin
	o.What, o.Setting, o.Begun = "administrators", "http.admin.listen", "administrators are answered"
	o.Administers, o.Exact, o.Base, o.RowText = true, true, c.BasePath, c.ShowRowText
	o.API = NewAPI(s) //nolint:contextcheck // requests bring their own
	o.Endless, o.End = eventsPath, s.events.end
	o.Limits = gate.Limits{
		Body: maxBody, Rate: cmp.Or(o.Limits.Rate, usualRate), Conns: maxConns, Read: readTimeout, Time: requestTime,
		Stop: stopTimeout,
	}
	return gate.Listen(ctx, o)
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
