// Package admin is the administration over HTTP: an API under /api/v1 that shows the state and performs actions, and
// pages that the caller mounts beside it. Package gate checks the tokens.
//
// The methods of Service are the queries and actions. The routes of the API and the pages call the same methods. Each
// method takes the caller from its context (gate.CallerOf) and rejects what the token's role or pipelines do not allow.
// So a page cannot show or do more than its reader may. Its errors are Problems, or ProblemOf converts them.
//
// A browser does not keep the token: POST /api/v1/session with the token answers with a cookie that scripts cannot
// read. The same code checks cookies and tokens, and a revoked token ends its sessions. GET /api/v1/events sends
// changes of the state as server-sent events; pages use Service.Watch.
//
// A role includes those before it: viewer sees the state, operator also acts on pipelines and rows, admin also sees the
// configuration and reloads plugins. A token may be limited to some pipelines. Operators and admins see the text of a
// row, if the configuration allows it.
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

// Limits of the listener.
const (
	maxBody   = 1 << 20
	maxConns  = 256
	usualRate = 50
	// requestTime is the time limit for an answer, except for events.
	requestTime = 90 * time.Second
	readTimeout = 30 * time.Second
	stopTimeout = 5 * time.Second
)

// Listen opens the port for administrators, whose tokens are in o, with a Service and pages. The caller must run the
// server or close it.
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
	o.API = NewAPI(s) //nolint:contextcheck // requests have their own
	o.Endless, o.End = eventsPath, s.events.end
	o.Limits = gate.Limits{
		Body: maxBody, Rate: cmp.Or(o.Limits.Rate, usualRate), Conns: maxConns, Read: readTimeout, Time: requestTime,
		Stop: stopTimeout,
	}
	return gate.Listen(ctx, o)
}

// NewAPI returns the API of a Service.
func NewAPI(s *Service) *gate.API {
	a := &api{service: s, API: gate.NewAPI("administration", "Show pipelines and rows, and act on them. Every error is "+
		"an application/problem+json with reason, code and hints.", "admin",
		s.config().Admin.BasePath, gate.RFC9457, &s.judge)}
	a.Sessions(sessionPath)
	a.routes()
	gate.OrNull[explain.Story](a.API, "task", "ledger")
	a.Close()
	return a.API
}
