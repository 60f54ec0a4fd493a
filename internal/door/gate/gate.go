// Package gate is what stands before all that is answered over HTTP with a token: who asks, how much of what is there
// for all one may have at a time, how errors are told, and the document of an API. What is answered is that of others:
// admin's and serve's APIs, and the dashboard's pages.
//
// Nobody takes anything of others before his request has come whole: bodies are read first, and places taken then. A
// token has a share of the places and of the memory; who has shown none takes no place, and has a share by his address.
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
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
	"github.com/embedsidecar/embedsidecar/internal/base/loopback"
)

// Options say where to listen, who may come in, and what is behind.
type Options struct {
	What, Setting, Begun string // as httpserver has them
	Listen               string // host:port; port 0 takes a free one
	Cert, Key            string // files of a certificate and its key, in PEM
	ClientCA             string // file of certificates, one of which must have signed a client's
	// Tokens are those that come in. nil: anybody who reaches the address, which must be a loopback one, with RoleQuery.
	Tokens      *Tokens
	Administers bool   // tokens of the roles that administer come in, and no others, or the other way round
	Base        string // where a reverse proxy has put all paths
	RowText     bool   // texts of rows may be shown at all

	API   *API
	Exact bool                    // what a request has left empty is refused: it must not mean everything
	Pages http.Handler            // answers every path that is not the API's, to those without a token, too. May be nil
	Open  map[string]http.Handler // paths that anybody may ask for
	// Of returns the API and the pages of one of several databases, by what the parameter database of a request says, "":
	// nothing. No API means those of Options, which are of no database. nil: there is one database.
	Of func(r *http.Request, database string) (*API, http.Handler, *Problem)
	// Database is the only one, where Of is nil: tokens for others do not come in. "": there is none.
	Database string
	Endless  string // path of an answer that has no end, and bounds of its own
	End      func() // ends such answers. May be nil

	Limits Limits
	// Observe notes a request that was answered. May be nil.
	Observe func(handler, method string, status int, took time.Duration)
	Log     *slog.Logger // nil: silent
}

// Limits bound what those who come in may ask for. Zero fields are the defaults.
type Limits struct {
	Body     int64         // bytes of a request; default 8 MiB
	Requests int           // under way at a time; a token has a quarter. One above is told to come again. Default 64
	Rate     int           // requests a second of one token or address; 0: any number
	Conns    int           // open at a time. Default 1,024
	Memory   int64         // bytes that all requests take together, as far as their sizes tell. Default 256 MiB
	Header   time.Duration // for a request's header. Default 5 s
	Read     time.Duration // for a request. Default: Time
	Time     time.Duration // of a request, from its first byte to its answer. Default 60 s
	Stop     time.Duration // for requests under way when told to stop. Default 10 s
}

// fill sets what is zero.
func (l *Limits) fill() {
	l.Body, l.Requests, l.Conns = cmp.Or(l.Body, 8<<20), cmp.Or(l.Requests, 64), cmp.Or(l.Conns, 1024)
	l.Memory, l.Header, l.Time = cmp.Or(l.Memory, 256<<20), cmp.Or(l.Header, 5*time.Second), cmp.Or(l.Time, time.Minute)
	l.Read, l.Stop = cmp.Or(l.Read, l.Time), cmp.Or(l.Stop, 10*time.Second)
}

const (
	writeSlack = 30 * time.Second // for a slow client to take its answer
	// A stranger shows a token, and no more: his body is small and comes at once, as does what he reads. However many
	// come, their connections are all that they take, and make room for others.
	ofAddress     = 8 // requests of strangers from one address
	strangersBody = 8 << 10
	strangersTime = 5 * time.Second // for a body, and for an answer
)

// Gate lets requests in.
type Gate struct {
	o        Options
	sessions sessions
	memory   *budget
	slots    chan struct{}
	known    clients // by name of the token
	other    clients // who have shown none, by address
}

// clients are those who ask with a token, or those without.
type clients struct {
	own   httpserver.Shares // of slots, and of bodies that are read before one is taken
	rates httpserver.Rates
}

// New makes a Gate, for a listener of somebody else.
func New(o Options) *Gate {
	o.Limits.fill()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Observe == nil {
		o.Observe = func(string, string, int, time.Duration) {}
	}
	own := 0
	if o.Tokens != nil {
		own = max(o.Limits.Requests/4, 1) //nolint:mnd // a quarter
	}
	return &Gate{
		o: o, sessions: sessions{list: map[string]session{}}, memory: newBudget(o.Limits.Memory),
		slots: make(chan struct{}, o.Limits.Requests),
		known: clients{own: httpserver.Shares{Most: own}, rates: httpserver.Rates{PerSecond: o.Limits.Rate}},
		other: clients{own: httpserver.Shares{Most: ofAddress}, rates: httpserver.Rates{PerSecond: o.Limits.Rate}},
	}
}

// Listen opens the port, so that a port that is taken is known before anything else starts. Run the server, or Close it
// if it never comes to that.
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
	if o.Tokens == nil && !loopback.Addr(server.Addr()) { // a name may lead anywhere
		_ = server.Close()
		return nil, &OpenError{What: o.What, Address: server.Addr().String()}
	}
	if o.Tokens != nil && o.Cert == "" && !loopback.Addr(server.Addr()) {
		g.o.Log.WarnContext(ctx, "tokens and texts travel unencrypted: give a certificate and its key, or have something in front that does",
			"for", o.What, "address", server.Addr().String())
	}
	return server, nil
}

// OpenError means that the address can be reached by others and nothing would keep them out.
type OpenError struct{ What, Address string }

func (e *OpenError) Error() string {
	return fmt.Sprintf("listen for %s on %s: without tokens anybody who reaches that address could ask; only a loopback address may do without",
		e.What, e.Address)
}

// Hints are the ways out.
func (*OpenError) Hints() []string {
	return []string{"give a file with tokens: --tokens-file FILE", "or listen on this machine only: --http 127.0.0.1:7470"}
}

// under takes a path off requests that bring it along. A proxy may have taken it off already.
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
		if failed != nil { // a client must not take half an answer for a whole one
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
	// The multiplexer would lead such a path to another place, where what is done may be about more.
	if escaped := r.URL.EscapedPath(); ofAPI && path.Clean(escaped) != strings.TrimSuffix(escaped, "/") {
		return g.o.API.noPlace(r)
	}
	from, name, largest := &g.other, httpserver.Network(r.RemoteAddr), int64(strangersBody)
	if v.known {
		httpserver.Known(r.Context(), v.caller.Name)
		from, name, largest = &g.known, v.caller.Name, g.o.Limits.Body
	} else if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangersTime)) // without it, Limits.Read is
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
	case endless: // its body has come, which is all that is bounded here
		giveBack()
	case !v.known:
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(strangersTime))
	default:
		select { // not before the body has come, which may take as long as the client likes
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		default:
			return Overloaded("too many requests are in progress: retry in a second", time.Second)
		}
	}
	api, pages := g.o.API, g.o.Pages
	switch {
	case !v.known: // who learns of no database by its name
	case g.o.Of == nil:
		if only := g.o.Database; only != "" && !v.caller.SeesDatabase(only) {
			return Refuse(http.StatusForbidden, "database", "this token is for other databases than the one that is served here")
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

// database takes the parameter that names a database off a request.
func (g *Gate) database(r *http.Request) string {
	if g.o.Of == nil {
		return ""
	}
	q := r.URL.Query()
	if !q.Has("database") || q.Get("database") == "" {
		return "" // an empty one is refused with the others
	}
	name := q.Get("database")
	q.Del("database")
	r.URL.RawQuery = q.Encode()
	return name
}

// choice is the database of a request: that which it names, or else the only one that the caller's token is for.
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

// NoDatabase is the answer for a database that is not there, or not for the caller.
func NoDatabase(name string) *Problem {
	return Refuse(http.StatusNotFound, "database_not_found", fmt.Sprintf("there is no database %q here", name),
		"GET /api/v1/databases on the administration's address lists them")
}

// ChooseDatabase is the answer to a request about a database that names none of several.
func ChooseDatabase(names []string) *Problem {
	const most = 20
	hint := "GET /api/v1/databases on the administration's address lists them"
	if len(names) > 0 {
		hint = "there are: " + strings.Join(names[:min(len(names), most)], ", ")
	}
	return Refuse(http.StatusBadRequest, "database", "several databases are served: choose one with ?database=NAME", hint)
}

// crossOrigin refuses what a page of another site asks in the name of the one who reads it; of the API also by GET: a
// model must not be started or a database asked by an image in a page. A page of this host that came without TLS is of
// another site where requests come with it: anyone on the way may have written it. The converse is let through: a proxy
// that ends TLS need not say so, and the origin of our own pages is then https.
func crossOrigin(r *http.Request, ofAPI bool) *Problem {
	judged := *r
	if ofAPI {
		judged.Method = http.MethodPost // others are let through unseen
	}
	bare := overTLS(r) && r.Header.Get("Sec-Fetch-Site") == "" && strings.HasPrefix(r.Header.Get("Origin"), "http:")
	if http.NewCrossOriginProtection().Check(&judged) == nil && !bare {
		return nil
	}
	return Refuse(http.StatusForbidden, "cross_origin", "a page of another site may not ask for anything here")
}

// overTLS reports whether the browser of a request uses TLS. Whoever lies in the header makes his own session narrower.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// Busy is the answer for a client that has its share.
func Busy(detail string) *Problem {
	return Refuse(http.StatusTooManyRequests, "rate", detail).After(time.Second)
}

// read reads the body of a request, in one piece where its length is known. One to the API it refuses if it is no text:
// the decoder would put other signs in its place.
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
		return Refuse(http.StatusRequestTimeout, "timeout", "the body did not come whole, or not in time")
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
		if p := vague(r.URL.Query()); p != nil {
			return p
		}
		return hollow(v.body, r.Method == http.MethodPatch)
	}
	return nil
}

// requestID returns an id that the client gave, if it is fit to be logged, or a new one.
func requestID(given string) string {
	const most = 128
	if given == "" || len(given) > most || strings.ContainsFunc(given, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || c == '"' || c == '\\'
	}) {
		return "req_" + rand.Text()
	}
	return given
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// method keeps labels few: a client may call its method what it likes.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
