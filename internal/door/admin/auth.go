package admin

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// SessionTime is how long a browser stays known that once has shown a token.
const SessionTime = 12 * time.Hour

const (
	sessionCookie = "embedsidecar_session"
	maxSessions   = 1000
)

// door finds out who makes a request.
type door struct {
	tokens  *serve.Tokens
	rowText bool // may be shown at all
	secure  bool // only over TLS
	base    string

	mu       sync.Mutex
	sessions map[string]session
}

// session is a browser that has shown a token. The token itself is not kept.
type session struct {
	of    serve.Token
	until time.Time
}

// caller returns who makes a request, by the token or the cookie that he sends.
func (d *door) caller(r *http.Request) (Caller, *Problem) {
	header := r.Header.Get("Authorization")
	if header == "" {
		if cookie, err := r.Cookie(sessionCookie); err == nil {
			return d.bySession(r, cookie.Value)
		}
		return Caller{}, unknown("")
	}
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Caller{}, unknown("")
	}
	who, ok := d.tokens.Who(strings.TrimSpace(secret))
	if !ok {
		return Caller{}, unknown(who.Unknown())
	}
	return d.admit(r, who)
}

func (d *door) bySession(r *http.Request, id string) (Caller, *Problem) {
	of, ok := d.session(id)
	if !ok {
		return Caller{}, unknown("the session is over: show the token again")
	}
	now, ok := d.tokens.Still(of)
	if !ok {
		return Caller{}, unknown("the token of this session was revoked, or has expired")
	}
	c, p := d.admit(r, now)
	c.session, c.still = true, func() bool {
		_, on := d.session(id)
		return on && d.still(c)
	}
	return c, p
}

// session returns whose session there is by this name, as long as it lasts.
func (d *door) session(id string) (of serve.Token, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions[id]
	return s.of, ok && time.Now().Before(s.until)
}

// admit lets a token in, if its role is one of the administration's.
func (d *door) admit(r *http.Request, who serve.Token) (Caller, *Problem) {
	if !who.Administers() {
		return Caller{}, &Problem{
			Status: http.StatusForbidden, Reason: "role",
			Detail: "this token has the role " + who.Role + ", which queries and does not administer",
		}
	}
	c := Caller{Name: who.Name, Role: who.Role, Pipelines: who.Pipelines, From: address(r), token: who}
	c.still = func() bool { return d.still(c) }
	c.RowText = d.rowText && c.May(serve.RoleOperator)
	c.secure = d.secure || r.Header.Get("X-Forwarded-Proto") == "https" // whoever lies makes his own session narrower
	return c, nil
}

// open begins a session of somebody who has shown a token, and returns its cookie.
func (d *door) open(c Caller) *http.Cookie {
	who := c.token
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	id := base64.RawURLEncoding.EncodeToString(random)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) >= maxSessions {
		d.forgetLocked(now)
	}
	d.sessions[id] = session{of: who, until: now.Add(SessionTime)}
	return d.cookie(id, int(SessionTime.Seconds()), c.secure)
}

// forgetLocked makes room: those that are over go, and if none is, the one that is over first of the token that has the
// most.
func (d *door) forgetLocked(now time.Time) {
	of := map[string]int{}
	for id, s := range d.sessions {
		if now.After(s.until) {
			delete(d.sessions, id)
		} else {
			of[s.of.ID]++
		}
	}
	first := ""
	for id, s := range d.sessions {
		f := d.sessions[first]
		if n, most := of[s.of.ID], of[f.of.ID]; first == "" || n > most || n == most && s.until.Before(f.until) {
			first = id
		}
	}
	if len(d.sessions) >= maxSessions {
		delete(d.sessions, first)
	}
}

// end ends the session of a request, if it has one, and returns the cookie that takes the other away.
func (d *door) end(id string) *http.Cookie {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, id)
	return d.cookie("", -1, d.secure)
}

// cookie is sent back to the administration alone, and not to what else the proxy shows.
func (d *door) cookie(value string, age int, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure where the browser came over TLS
		Name: sessionCookie, Value: value, Path: cmp.Or(d.base, "/"), MaxAge: age, HttpOnly: true, Secure: secure,
		SameSite: http.SameSiteStrictMode,
	}
}

// still reports whether the token of somebody is in force, for as much as it was.
func (d *door) still(who Caller) bool {
	now, ok := d.tokens.Still(who.token)
	return ok && now.Role == who.Role && slices.Equal(now.Pipelines, who.Pipelines)
}
