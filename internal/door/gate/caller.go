package gate

import (
	"context"
	"mime"
	"net"
	"net/http"
	"slices"
)

// Caller is who asks, with what his token lets him do.
type Caller struct {
	Token

	RowText bool   // he may see texts of rows
	From    string // his address

	gate    *Gate
	session string // the name of the session that he is in; "": he has shown the token
}

// ladders are the roles, each with less than the next: of those that query, and of those that administer.
var ladders = [][]string{{RoleEmbed, RoleQuery}, {RoleViewer, RoleOperator, RoleAdmin}}

// May reports whether what takes a role is his to do.
func (c Caller) May(role string) bool {
	return slices.ContainsFunc(ladders, func(ladder []string) bool {
		at := slices.Index(ladder, role)
		return at >= 0 && slices.Index(ladder, c.Role) >= at
	})
}

// Sees reports whether a pipeline, by its whole name, is his to see.
func (c Caller) Sees(pipeline string) bool {
	return len(c.Pipelines) == 0 || slices.Contains(c.Pipelines, pipeline)
}

// SeesDatabase reports whether a database of several is his to see.
func (c Caller) SeesDatabase(name string) bool {
	return len(c.Databases) == 0 || slices.Contains(c.Databases, name)
}

// SaidBy is how the audit names him.
func (c Caller) SaidBy() string { return "http:" + c.Name + "@" + c.From }

// Still reports whether he is let in now as he was then: his session lasts, and his token is in force for as much as
// it was.
func (c Caller) Still() bool {
	if _, on := c.gate.sessions.of(c.session); c.session != "" && !on {
		return false
	}
	now, ok := c.gate.o.Tokens.Still(c.Token)
	return ok && now.Role == c.Role && slices.Equal(now.Pipelines, c.Pipelines) &&
		slices.Equal(now.Databases, c.Databases)
}

// visit is one request, with who makes it and what it holds.
type visit struct {
	gate   *Gate
	from   string // the address that it comes from
	cookie string // of a session, maybe
	secure bool   // the browser came over TLS
	caller Caller
	known  bool // he has shown a token, or none is wanted
	header http.Header
	body   []byte
	share  *share // of the memory
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// CallerOf returns who asks in a context; ok is false for somebody who has shown no token.
func CallerOf(ctx context.Context) (c Caller, ok bool) {
	v := visitOf(ctx)
	if v == nil || !v.known {
		return c, false
	}
	return v.caller, true
}

// Vectors takes the memory that an answer of vectors costs.
func Vectors(ctx context.Context, texts, dims int) error {
	if p := visitOf(ctx).share.vectors(texts, dims); p != nil {
		return p
	}
	return nil
}

// JSON is the body of a request, which came whole and must be said to be JSON.
func JSON(ctx context.Context) ([]byte, error) {
	v := visitOf(ctx)
	if kind, _, err := mime.ParseMediaType(v.header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, Refuse(http.StatusUnsupportedMediaType, "content_type",
			"the body must be JSON: send Content-Type: application/json")
	}
	return v.body, nil
}

// Asked returns who asks, if he has a role.
func Asked(ctx context.Context, role string) (Caller, error) {
	c, ok := CallerOf(ctx)
	switch {
	case !ok:
		return c, Unknown("")
	case !c.May(role):
		return c, Refuse(http.StatusForbidden, "role", "this takes the role "+role+", and this token has "+c.Role)
	}
	return c, nil
}

// Wholly returns who asks, if he has a role for all pipelines.
func Wholly(ctx context.Context, role string) (Caller, error) {
	c, err := Asked(ctx, role)
	if err == nil && len(c.Pipelines) > 0 {
		err = Refuse(http.StatusForbidden, "scope", "this is about the whole program, and this token is for some pipelines")
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
