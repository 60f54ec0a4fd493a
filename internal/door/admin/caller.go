package admin

import (
	"context"
	"net"
	"net/http"
	"slices"

	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// Caller is who asks.
type Caller struct {
	Name      string   // of his token
	Role      string   // serve.RoleViewer, serve.RoleOperator or serve.RoleAdmin
	Pipelines []string // that he sees, and may change; none: all
	RowText   bool     // he may see texts of rows
	From      string   // his address

	token   serve.Token
	still   func() bool // he is let in now as he was then
	session bool        // he has shown a cookie, and not the token
	secure  bool        // his browser came over TLS
}

// roles are those that come in, each with less than the next.
var roles = []string{serve.RoleViewer, serve.RoleOperator, serve.RoleAdmin}

// May reports whether what takes a role is his to do.
func (c Caller) May(role string) bool {
	at := slices.Index(roles, role)
	return at >= 0 && slices.Index(roles, c.Role) >= at
}

// Sees reports whether a pipeline, by its whole name, is his to see.
func (c Caller) Sees(pipeline string) bool {
	return len(c.Pipelines) == 0 || slices.Contains(c.Pipelines, pipeline)
}

// SaidBy is how the audit names him.
func (c Caller) SaidBy() string { return "http:" + c.Name + "@" + c.From }

type callerKey struct{}

// WithCaller returns a context in which somebody asks.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who asks in a context; ok is false for somebody who has shown no token.
func CallerOf(ctx context.Context) (c Caller, ok bool) {
	c, ok = ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// asked returns who asks, if he has a role.
func asked(ctx context.Context, role string) (Caller, error) {
	c, ok := CallerOf(ctx)
	switch {
	case !ok:
		return c, unknown("")
	case !c.May(role):
		return c, &Problem{
			Status: http.StatusForbidden, Reason: "role",
			Detail: "this takes the role " + role + ", and this token has " + c.Role,
		}
	}
	return c, nil
}

// wholly returns who asks, if he has a role for all pipelines.
func wholly(ctx context.Context, role string) (Caller, error) {
	c, err := asked(ctx, role)
	if err == nil && len(c.Pipelines) > 0 {
		return c, &Problem{
			Status: http.StatusForbidden, Reason: "scope",
			Detail: "this is about the whole program, and this token is for some pipelines",
		}
	}
	return c, err
}

// address is where a request comes from, without the port.
func address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}
