package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
)

// SessionTime is the lifetime of a browser session.
const SessionTime = 12 * time.Hour

const (
	sessionCookie = "embedsidecar_session"
	maxSessions   = 1000
)

type sessions struct {
	mu   sync.Mutex
	list map[string]session // by cookie value
}

// session is a browser that signed in with a token. It does not hold the token.
type session struct {
	who   Token
	until time.Time
}

// of returns the token data of an unexpired session.
func (l *sessions) of(id string) (who Token, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.list[id]
	return s.who, ok && time.Now().Before(s.until)
}

// open begins a session for the holder of a token.
func (l *sessions) open(who Token) (id string) {
	id = rand.Text()
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= maxSessions {
		l.forgetLocked(now)
	}
	l.list[id] = session{who, now.Add(SessionTime)}
	return id
}

// forgetLocked makes room: it deletes expired sessions or, if none has expired, the one that expires first of the token
// with the most sessions.
func (l *sessions) forgetLocked(now time.Time) {
	of := map[string]int{}
	for id, s := range l.list {
		if now.After(s.until) {
			delete(l.list, id)
		} else {
			of[s.who.ID]++
		}
	}
	first := ""
	for id, s := range l.list {
		f := l.list[first]
		if n, most := of[s.who.ID], of[f.who.ID]; first == "" || n > most || n == most && s.until.Before(f.until) {
			first = id
		}
	}
	if len(l.list) >= maxSessions {
		delete(l.list, first)
	}
}

func (l *sessions) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, id)
}

// cookie makes the session cookie. Its path limits it to this listener's pages behind a proxy. It is Secure if the
// browser uses TLS.
func (g *Gate) cookie(value string, age time.Duration, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // as above
		Name: sessionCookie, Value: value, Path: cmp.Or(g.o.Base, "/"), MaxAge: int(age.Seconds()), HttpOnly: true,
		Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// SignIn begins a session and returns its cookie. It uses the given token from a form, or else the token of the
// request.
func SignIn(ctx context.Context, secret string) (*http.Cookie, error) {
	v := visitOf(ctx)
	who := v.caller
	if secret != "" || !v.known {
		var refused *Problem
		if who, refused = v.bySecret(secret); refused != nil {
			return nil, refused
		}
	}
	if who.session != "" { // otherwise a stolen cookie could be renewed for ever
		return nil, Refuse(http.StatusForbidden, "session", "a session needs the token, not another session")
	}
	return v.gate.cookie(v.gate.sessions.open(who.Token), SessionTime, v.secure), nil
}

// SignOut ends the session, if there is one, and returns a cookie that deletes the browser's.
func SignOut(ctx context.Context) *http.Cookie {
	v := visitOf(ctx)
	v.gate.sessions.end(v.cookie)
	return v.gate.cookie("", -time.Second, v.secure)
}

// enter identifies the caller by the token or the cookie of the request. Without tokens it rejects a Host of another
// machine, because a web page could point its own DNS name to this address.
func (v *visit) enter(r *http.Request) *Problem {
	o := &v.gate.o
	v.from = address(r)
	v.secure = overTLS(r)
	if cookie, err := r.Cookie(sessionCookie); err == nil && o.Administers {
		v.cookie = cookie.Value
	}
	var refused *Problem
	switch header := r.Header.Get("Authorization"); {
	case o.Tokens == nil && !httpserver.NamesThisMachine(r.Host):
		return Refuse(http.StatusForbidden, "wrong_host", "without tokens, only requests to localhost are answered")
	case o.Tokens == nil:
		v.caller = Caller{Token: Token{Grant: Grant{Role: RoleQuery}}}
	case header != "":
		scheme, secret, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return Unknown("")
		}
		v.caller, refused = v.bySecret(secret)
	case v.cookie != "":
		v.caller, refused = v.bySession()
	default:
		return Unknown("")
	}
	v.known = refused == nil
	return refused
}

func (v *visit) bySecret(secret string) (Caller, *Problem) {
	who, ok := v.gate.o.Tokens.Who(strings.TrimSpace(secret))
	if !ok {
		return Caller{}, Unknown(who.Unknown())
	}
	return v.admit(who)
}

func (v *visit) bySession() (Caller, *Problem) {
	of, ok := v.gate.sessions.of(v.cookie)
	if !ok {
		return Caller{}, Unknown("the session has ended: send the token again")
	}
	now, ok := v.gate.o.Tokens.Still(of)
	if !ok {
		return Caller{}, Unknown("the token of this session was revoked, or has expired")
	}
	c, refused := v.admit(now)
	c.session = v.cookie
	return c, refused
}

// admit accepts a token if its role belongs to this listener.
func (v *visit) admit(who Token) (Caller, *Problem) {
	o := &v.gate.o
	if o.Administers != who.Administers() {
		does := "which queries and does not administer"
		if who.Administers() {
			does = "which administers, and neither embeds nor searches"
		}
		return Caller{}, Refuse(http.StatusForbidden, "role", "this token has the role "+who.Role+", "+does)
	}
	c := Caller{Token: who, From: v.from, gate: v.gate}
	c.RowText = o.RowText && c.May(RoleOperator)
	return c, nil
}
