package gate

import (
	"context"
	"mime"
	"net"
	"net/http"
	"slices"
)

// Caller is the client of a request with the rights of its token.
type Caller struct {
	Token

	RowText bool   // may see texts of rows
	From    string // client address

	gate    *Gate
	session string // session id; "": the request has the token
}

// ladders are the roles in ascending order: those that query, and those that administer.
var ladders = [][]string{{RoleEmbed, RoleQuery}, {RoleViewer, RoleOperator, RoleAdmin}}

// May reports whether the caller's role includes a role.
func (c Caller) May(role string) bool {
	return slices.ContainsFunc(ladders, func(ladder []string) bool {
		at := slices.Index(ladder, role)
		return at >= 0 && slices.Index(ladder, c.Role) >= at
	})
}

// Sees reports whether the caller may see a pipeline, given by its full name.
func (c Caller) Sees(pipeline string) bool {
	return len(c.Pipelines) == 0 || slices.Contains(c.Pipelines, pipeline)
}

// SeesDatabase reports whether the caller may see one of several databases.
func (c Caller) SeesDatabase(name string) bool {
	return len(c.Databases) == 0 || slices.Contains(c.Databases, name)
}

// SaidBy is the caller's name in the audit.
func (c Caller) SaidBy() string { return "http:" + c.Name + "@" + c.From }

// Still reports whether the caller would be admitted now with the same rights: the session has not ended, and the token
// is valid and unchanged.
func (c Caller) Still() bool {
	if _, on := c.gate.sessions.of(c.session); c.session != "" && !on {
		return false
	}
	now, ok := c.gate.o.Tokens.Still(c.Token)
	return ok && now.Role == c.Role && slices.Equal(now.Pipelines, c.Pipelines) &&
		slices.Equal(now.Databases, c.Databases)
}

// visit is one request with its caller and the resources that it holds.
type visit struct {
	gate   *Gate
	from   string // client address
	cookie string // session cookie, if sent
	secure bool   // the browser uses TLS
	caller Caller
	known  bool // it has a valid token, or none is needed
	header http.Header
	body   []byte
	share  *share // its share of the memory
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// CallerOf returns the caller of a context; ok is false without a valid token.
func CallerOf(ctx context.Context) (c Caller, ok bool) {
	v := visitOf(ctx)
	if v == nil || !v.known {
		return c, false
	}
	return v.caller, true
}

// Vectors reserves the memory for an answer with vectors.
func Vectors(ctx context.Context, texts, dims int) error {
	if p := visitOf(ctx).share.vectors(texts, dims); p != nil {
		return p
	}
	return nil
}

// JSON returns the body of a request, which must have the content type of JSON.
func JSON(ctx context.Context) ([]byte, error) {
	v := visitOf(ctx)
	if kind, _, err := mime.ParseMediaType(v.header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, Refuse(http.StatusUnsupportedMediaType, "content_type",
			"the body must be JSON: send Content-Type: application/json")
	}
	return v.body, nil
}

// Asked returns the caller if it has a role, and otherwise an error.
func Asked(ctx context.Context, role string) (Caller, error) {
	c, ok := CallerOf(ctx)
	switch {
	case !ok:
		return c, Unknown("")
	case !c.May(role):
		return c, Refuse(http.StatusForbidden, "role", "this needs the role "+role+", and this token has "+c.Role)
	}
	return c, nil
}

// Wholly returns the caller if it has a role for all pipelines.
func Wholly(ctx context.Context, role string) (Caller, error) {
	c, err := Asked(ctx, role)
	if err == nil && len(c.Pipelines) > 0 {
		err = Refuse(http.StatusForbidden, "scope", "this needs a token for all pipelines")
	}
	return c, err
}

// Everywhere is Wholly for what the databases of the process share: it refuses a caller limited to some of them.
func Everywhere(ctx context.Context, role string) (Caller, error) {
	c, err := Wholly(ctx, role)
	if err == nil && len(c.Databases) > 0 {
		err = Refuse(http.StatusForbidden, "scope", "this needs a token for all databases")
	}
	return c, err
}

// address returns the client address without the port.
func address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}
