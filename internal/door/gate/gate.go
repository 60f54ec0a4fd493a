// Package gate handles HTTP requests before they reach the APIs of admin and serve and the pages of the dashboard:
// authentication, limits on shared resources, the format of errors, and the document of an API.
//
// A request takes no shared resource before it has arrived completely: bodies are read first, and slots are taken then.
// A token has a share of the slots and of the memory. A client without a token takes no slot, and its address has a
// share.
package gate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
)

// Options configure a listener: its address, its clients and its handlers.
type Options struct {
	What, Setting, Begun string // as in httpserver
	Listen               string // host:port; port 0 takes a free one
	Cert, Key            string // files of a certificate and its key, in PEM
	ClientCA             string // file of certificates; a client's must be signed by one of them
	// Tokens are the accepted tokens. nil: no authentication, with RoleQuery; the address must then be a loopback one.
	Tokens      *Tokens
	Administers bool   // accept only tokens with an administrative role, or only the others
	Base        string // path prefix of a reverse proxy
	RowText     bool   // whether texts of rows may be shown at all

	API   *API
	Exact bool                    // reject empty fields, which must not mean everything
	Pages http.Handler            // serves every path outside of the API, without a token, too. May be nil
	Open  map[string]http.Handler // paths without authentication
	// Of returns the API and the pages of one of several databases, given the parameter database of a request ("" if
	// absent). A nil API means those of Options, which belong to no database. Of is nil if there is one database.
	Of func(r *http.Request, database string) (*API, http.Handler, *Problem)
	// Database is the only one, if Of is nil: tokens for others are rejected. "": there is none.
	Database string
	Endless  string // path of an endless answer, which has its own limits
	End      func() // ends such answers. May be nil

	Limits Limits
	// Observe records an answered request. May be nil.
	Observe func(handler, method string, status int, took time.Duration)
	Log     *slog.Logger // nil: silent
}

// Limits bound the requests of clients. Zero fields have the defaults.
type Limits struct {
	Body     int64         // bytes of a request; default 8 MiB
	Requests int           // in progress, a quarter of them per token. Default 64
	Rate     int           // requests per second of one token or address; 0: no limit
	Conns    int           // open connections. Default 1,024
	Memory   int64         // estimated bytes of all requests together. Default 256 MiB
	Header   time.Duration // to read a request's header. Default 5 s
	Read     time.Duration // to read a request. Default: Time
	Time     time.Duration // from a request's first byte to its answer. Default 60 s
	Stop     time.Duration // for requests in progress at shutdown. Default 10 s
}

// fill sets what is zero.
func (l *Limits) fill() {
	l.Body, l.Requests, l.Conns = cmp.Or(l.Body, 8<<20), cmp.Or(l.Requests, 64), cmp.Or(l.Conns, 1024)
	l.Memory, l.Header, l.Time = cmp.Or(l.Memory, 256<<20), cmp.Or(l.Header, 5*time.Second), cmp.Or(l.Time, time.Minute)
	l.Read, l.Stop = cmp.Or(l.Read, l.Time), cmp.Or(l.Stop, 10*time.Second)
}

const (
	writeSlack = 30 * time.Second // for a slow client to read its answer
	// A client without a token may only send one. So its bodies and answers are small and fast. Its requests take only
	// connections, and these are closed when others need them.
	ofAddress     = 8 // requests from one address without a token
	strangersBody = 8 << 10
	strangersTime = 5 * time.Second // to read a body, and to write an answer
)

// Gate is the handler in front of APIs and pages.
type Gate struct {
	o        Options
	sessions sessions
	memory   *budget
	slots    chan struct{}
	known    clients // by name of the token
	other    clients // without a token, by address
}

// clients holds the shares of the clients with a token, or of those without.
type clients struct {
	own   httpserver.Shares // of slots, and of bodies being read
	rates httpserver.Rates
}

// New makes a Gate for use with another listener.
func New(o Options) *Gate {
	o.Limits.fill()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Observe == nil {
		o.Observe = func(string, string, int, time.Duration) {}
	}
	own := 0
	if o.Tokens != nil {
		own = max(o.Limits.Requests/4, 1)
	}
	return &Gate{
		o: o, sessions: sessions{list: map[string]session{}}, memory: newBudget(o.Limits.Memory),
		slots: make(chan struct{}, o.Limits.Requests),
		known: clients{own: httpserver.Shares{Most: own}, rates: httpserver.Rates{PerSecond: o.Limits.Rate}},
		other: clients{own: httpserver.Shares{Most: ofAddress}, rates: httpserver.Rates{PerSecond: o.Limits.Rate}},
	}
}

// Listen opens the port first, so that a port in use is reported before anything else starts. The caller must run the
// server or close it.
func Listen(ctx context.Context, o Options) (*httpserver.Server, error) {
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && o.Tokens == nil &&
		(host == "" || net.ParseIP(host) != nil && !loopback.Host(host)) {
		return nil, &OpenError{What: o.What, Address: o.Listen}
	}
	g := New(o)
	l := &g.o.Limits
	server, err := httpserver.Listen(ctx, httpserver.Options{
		What: o.What, Setting: o.Setting, Begun: o.Begun,
		Listen: o.Listen, Cert: o.Cert, Key: o.Key, ClientCA: o.ClientCA,
		Handler: func(net.Addr) http.Handler { return under(o.Base, g) },
		Conns:   l.Conns, Header: l.Header, Read: l.Read, Write: l.Time + writeSlack, Stop: l.Stop, End: o.End, Log: g.o.Log,
	})
	if err != nil {
		return nil, err
	}
	if o.Tokens == nil && !loopback.Addr(server.Addr()) { // a host name may resolve to any address
		_ = server.Close()
		return nil, &OpenError{What: o.What, Address: server.Addr().String()}
	}
	if o.Tokens != nil && o.Cert == "" && !loopback.Addr(server.Addr()) {
		g.o.Log.WarnContext(ctx, "tokens and texts are not encrypted: configure a certificate and its key, or a proxy with TLS",
			"for", o.What, "address", server.Addr().String())
	}
	return server, nil
}

// OpenError means that others can reach the address and no token is required.
type OpenError struct{ What, Address string }

func (e *OpenError) Error() string {
	return fmt.Sprintf("listen for %s on %s: without tokens, everyone who reaches that address could send requests; only a loopback address needs none",
		e.What, e.Address)
}

// Hints returns the hints of the error.
func (*OpenError) Hints() []string {
	return []string{"give a file with tokens: --tokens-file FILE", "or listen on this machine only: --http 127.0.0.1:7470"}
}

// under removes the base path from requests that have it. A proxy may have removed it already.
func under(base string, next http.Handler) http.Handler {
	if base == "" {
		return next
	}
	within := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusPermanentRedirect)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			within.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ServeHTTP implements http.Handler.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	sw := &statusWriter{ResponseWriter: w}
	id := requestID(r.Header.Get("X-Request-Id"))
	for name, value := range map[string]string{
		"X-Request-Id": id, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
	} {
		w.Header().Set(name, value)
	}
	name := "pages"
	if _, open := g.o.Open[r.URL.Path]; open {
		name = "health"
	} else if g.ofAPI(r) {
		name = g.o.API.named(r)
	}
	v := &visit{gate: g, header: r.Header}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	defer func() { //nolint:contextcheck // the request has its own
		failed := recover()
		if failed != nil && failed != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			g.o.Log.ErrorContext(r.Context(), "request panicked", "handler", name, "panic", fmt.Sprint(failed), "request_id", id)
			if sw.status == 0 {
				g.write(sw, Refuse(http.StatusInternalServerError, "internal", "the request failed; the log of the server says why"))
				failed = nil
			}
		}
		took := time.Since(began)
		g.o.Observe(name, method(r.Method), sw.status, took)
		g.o.Log.DebugContext(r.Context(), "request answered", "handler", name, "status", sw.status, "took_seconds",
			took.Seconds(), "request_id", id)
		if failed != nil { // the client must notice that the answer is incomplete
			panic(http.ErrAbortHandler)
		}
	}()
	if p := g.answer(sw, r, v); p != nil {
		p.entitle()
		g.write(sw, p)
	}
}

func (g *Gate) ofAPI(r *http.Request) bool {
	return g.o.Pages == nil || strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == documentPath
}

func (g *Gate) answer(w http.ResponseWriter, r *http.Request, v *visit) *Problem {
	ofAPI := g.ofAPI(r)
	if p := crossOrigin(r, ofAPI); p != nil {
		return p
	}
	if open, ok := g.o.Open[r.URL.Path]; ok {
		open.ServeHTTP(w, r)
		return nil
	}
	named := g.database(r)
	if p := v.enter(r); p != nil && ofAPI {
		return p
	}
	// The multiplexer would redirect such a path, and the action on the other path may affect more.
	if escaped := r.URL.EscapedPath(); ofAPI && path.Clean(escaped) != strings.TrimSuffix(escaped, "/") {
		return g.o.API.noPlace(r)
	}
	from, name, largest := &g.other, httpserver.Network(r.RemoteAddr), int64(strangersBody)
	if v.known {
		httpserver.Known(r.Context(), v.caller.Name)
		from, name, largest = &g.known, v.caller.Name, g.o.Limits.Body
	} else if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangersTime)) // else Limits.Read applies
	}
	if !from.rates.Allow(name) {
		return Busy(fmt.Sprintf("this client sends more than %d requests per second", g.o.Limits.Rate))
	}
	if !from.own.Take(name) {
		return Busy(fmt.Sprintf("this client already has %d requests in progress, the most allowed", from.own.Most))
	}
	giveBack := sync.OnceFunc(func() { from.own.GiveBack(name) })
	defer giveBack()
	endless := r.URL.Path == g.o.Endless
	if !endless {
		ctx, cancel := context.WithTimeout(r.Context(), g.o.Limits.Time)
		defer cancel()
		r = r.WithContext(ctx)
	}
	v.share = g.memory.of(v.caller.Name)
	defer v.share.release()
	if p := v.share.body(r.Context(), r.ContentLength, largest); p != nil {
		return p
	}
	if p := g.read(w, r, v, largest, ofAPI); p != nil {
		return p
	}
	switch {
	case endless: // its body has arrived, and only that is limited here
		giveBack()
	case !v.known:
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(strangersTime))
	default:
		select { // only after the body has arrived, because a slow client may take long to send it
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		default:
			return Overloaded("too many requests are in progress: retry in a second", time.Second)
		}
	}
	api, pages := g.o.API, g.o.Pages
	switch {
	case !v.known: // a client without a token must not find out the names of databases
	case g.o.Of == nil:
		if only := g.o.Database; only != "" && !v.caller.SeesDatabase(only) {
			return Refuse(http.StatusForbidden, "database", "this token is limited to other databases")
		}
	default:
		database, p := v.choice(named)
		if p != nil {
			return p
		}
		its, shown, p := g.o.Of(r, database)
		if p != nil {
			return p
		}
		if its != nil {
			api, pages = its, shown
		}
	}
	if ofAPI {
		api.mux.ServeHTTP(w, r)
	} else {
		pages.ServeHTTP(w, r)
	}
	return nil
}

// database removes the parameter that names a database from a request, and returns it.
func (g *Gate) database(r *http.Request) string {
	if g.o.Of == nil {
		return ""
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || q.Get("database") == "" {
		return "" // it is rejected later
	}
	name := q.Get("database")
	q.Del("database")
	r.URL.RawQuery = q.Encode()
	return name
}

// choice returns the database of a request: the named one, or else the only one that the caller's token is for.
func (v *visit) choice(named string) (string, *Problem) {
	his := v.caller.Databases
	switch {
	case len(his) == 0:
		return named, nil
	case named == "" && len(his) == 1:
		return his[0], nil
	case named == "" || v.caller.SeesDatabase(named):
		return named, nil
	}
	return "", NoDatabase(named)
}

// NoDatabase is the answer for a database that does not exist, or that the caller may not see.
func NoDatabase(name string) *Problem {
	return Refuse(http.StatusNotFound, "database_not_found", fmt.Sprintf("there is no database %q here", name),
		"GET /api/v1/databases on the administration's address lists them")
}

// ChooseDatabase is the answer if a request must name one of several databases, but does not.
func ChooseDatabase(names []string) *Problem {
	hint := "GET /api/v1/databases on the administration's address lists them"
	if len(names) > 0 {
		hint = "there are: " + strings.Join(names[:min(len(names), 20)], ", ")
	}
	return Refuse(http.StatusBadRequest, "database", "several databases are served: choose one with ?database=NAME", hint)
}

// crossOrigin rejects requests from pages of other sites. For the API this includes GET, since an image in a page must
// not start a model or query a database. If requests use TLS, a page of this host that was loaded without TLS counts as
// another site, because an attacker on the network may have changed it. The converse is accepted: a proxy that
// terminates TLS need not send a header, and then the program's own pages have an https origin.
func crossOrigin(r *http.Request, ofAPI bool) *Problem {
	judged := *r
	if ofAPI {
		judged.Method = http.MethodPost // GET would not be checked
	}
	bare := overTLS(r) && r.Header.Get("Sec-Fetch-Site") == "" && strings.HasPrefix(r.Header.Get("Origin"), "http:")
	if http.NewCrossOriginProtection().Check(&judged) == nil && !bare {
		return nil
	}
	return Refuse(http.StatusForbidden, "cross_origin", "requests from pages of other sites are rejected")
}

// overTLS reports whether the browser of a request uses TLS. A false header only restricts the sender's own session.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// Busy is the answer for a client that has used up its share.
func Busy(detail string) *Problem {
	return Refuse(http.StatusTooManyRequests, "rate", detail).After(time.Second)
}

// read reads the body of a request into memory, allocated at once if its length is known. For the API it rejects a body
// that is not UTF-8, because the decoder would replace invalid bytes.
func (g *Gate) read(w http.ResponseWriter, r *http.Request, v *visit, largest int64, ofAPI bool) *Problem {
	tooLarge := Refuse(http.StatusRequestEntityTooLarge, "too_large",
		fmt.Sprintf("the body is larger than %d bytes: send less at a time", largest))
	if r.ContentLength > largest {
		return tooLarge
	}
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, largest))
	if errors.As(err, new(*http.MaxBytesError)) {
		return tooLarge
	}
	if err != nil {
		return Refuse(http.StatusRequestTimeout, "timeout", "the body is incomplete or arrived too slowly")
	}
	v.body = body.Bytes()
	r.Body = io.NopCloser(bytes.NewReader(v.body))
	switch coding := r.Header.Get("Content-Encoding"); {
	case !ofAPI:
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return Refuse(http.StatusUnsupportedMediaType, "content_encoding", "the body must not be compressed")
	case !utf8.Valid(v.body):
		return Mistaken("utf8", "body", "the body is not UTF-8")
	case g.o.Exact:
		if p := vague(r.URL.RawQuery); p != nil {
			return p
		}
		return hollow(v.body, r.Method == http.MethodPatch)
	}
	return nil
}

// requestID returns the client's id if it is safe to log, or a new one.
func requestID(given string) string {
	if given == "" || len(given) > 128 || strings.ContainsFunc(given, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || c == '"' || c == '\\'
	}) {
		return "req_" + rand.Text()
	}
	return given
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// method maps unknown methods to one label: a client may send any method.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
