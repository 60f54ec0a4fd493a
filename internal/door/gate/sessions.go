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

// SessionTime is how long a browser stays known that once has shown a token.
const SessionTime = 12 * time.Hour

const (
	sessionCookie = "embedsidecar_session"
	maxSessions   = 1000
)

// sessions are the browsers that are known.
type sessions struct {
	mu   sync.Mutex
	list map[string]session // by the value of its cookie
}

// session is a browser that has shown a token. The token itself is not kept.
type session struct {
	who   Token
	until time.Time
}

// of returns whose session there is by this name, as long as it lasts.
func (l *sessions) of(id string) (who Token, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.list[id]
	return s.who, ok && time.Now().Before(s.until)
}

// open begins a session of somebody who has shown a token.
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

// forgetLocked makes room: those that are over go, and if none is, the one that is over first of the token that has the
// most.
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

// cookie is sent back to this listener alone, and not to what else the proxy shows. It is Secure where the browser came
// over TLS.
func (g *Gate) cookie(value string, age time.Duration, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // as above
		Name: sessionCookie, Value: value, Path: cmp.Or(g.o.Base, "/"), MaxAge: int(age.Seconds()), HttpOnly: true,
		Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// SignIn begins a session of who asks, and returns its cookie: by a token that he brings in a form, or the one that he
// has shown.
func SignIn(ctx context.Context, secret string) (*http.Cookie, error) {
	v := visitOf(ctx)
	who := v.caller
	if secret != "" || !v.known {
		var refused *Problem
		if who, refused = v.bySecret(secret); refused != nil {
			return nil, refused
		}
	}
	if who.session != "" { // the one who has got hold of a cookie would have it for ever
		return nil, Refuse(http.StatusForbidden, "session", "a session is begun with the token, not with another session")
	}
	return v.gate.cookie(v.gate.sessions.open(who.Token), SessionTime, v.secure), nil
}

// SignOut ends the session of a browser, if there is one, and returns the cookie that takes the other away.
func SignOut(ctx context.Context) *http.Cookie {
	v := visitOf(ctx)
	v.gate.sessions.end(v.cookie)
	return v.gate.cookie("", -time.Second, v.secure)
}

// enter finds out who asks, by the token or the cookie that he sends. Without tokens it refuses names of other
// machines: a page on the web could have its own name lead to this address.
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
		return Caller{}, Unknown("the session is over: show the token again")
	}
	now, ok := v.gate.o.Tokens.Still(of)
	if !ok {
		return Caller{}, Unknown("the token of this session was revoked, or has expired")
	}
	c, refused := v.admit(now)
	c.session = v.cookie
	return c, refused
}

// admit lets a token in, if its role is one of this listener's.
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
