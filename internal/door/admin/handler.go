package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
)

// Bounds of what those who come in may ask for.
const (
	maxRequests = 64 // under way at a time, those that watch aside
	maxBody     = 1 << 20
	usualRate   = 50 // requests a second, of one token
)

// handler answers all requests to the listener.
type handler struct {
	o     Options
	door  *door
	api   http.Handler
	known clients // by name of the token
	other clients // who have shown none, by address
}

// clients are those who ask with a token, or those without: neither take places of the other.
type clients struct {
	slots chan struct{}
	own   httpserver.Shares // of slots, and of bodies that are read before one is taken
	rates httpserver.Rates
}

func newClients(all, own, rate int) clients {
	return clients{
		slots: make(chan struct{}, all), own: httpserver.Shares{Most: own}, rates: httpserver.Rates{PerSecond: rate},
	}
}

// newHandler returns what answers, and what ends those answers that have no end of their own.
func newHandler(o Options, secure bool) (h http.Handler, closing func()) {
	if o.Observe == nil {
		o.Observe = func(string, string, int, time.Duration) {}
	}
	c := &o.Service.o.Config.Admin
	d := &door{
		tokens: o.Tokens, rowText: c.ShowRowText, secure: secure, base: c.BasePath, sessions: map[string]session{},
	}
	a := &handler{
		o: o, door: d, known: newClients(maxRequests, ownRequests, o.Rate), other: newClients(strangers, ofAddress, o.Rate),
	}
	a.api = newAPI(o.Service, d)
	return under(c.BasePath, a), o.Service.events.end
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
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	sw := &statusWriter{ResponseWriter: w}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	name := "pages"
	if ofAPI(r.URL.Path) {
		name = "admin"
	}
	ctx := r.Context()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			h.o.Log.ErrorContext(ctx, "request of an administrator panicked", "panic", fmt.Sprint(v))
			if sw.status == 0 {
				(&Problem{Status: http.StatusInternalServerError, Reason: "internal", Detail: "the request failed"}).write(sw)
			}
		}
		h.o.Observe(name, method(r.Method), sw.status, time.Since(began))
	}()
	if p := h.answer(sw, r); p != nil {
		if p.Status == http.StatusUnauthorized || p.Status == http.StatusTooManyRequests {
			header.Set("Connection", "close") // nobody keeps a connection by asking in vain
		}
		if p.Status == http.StatusUnauthorized {
			header.Set("WWW-Authenticate", `Bearer realm="embedsidecar"`)
		}
		p.write(sw)
	}
}

// ofAPI reports whether a path is the API's.
func ofAPI(place string) bool { return strings.HasPrefix(place, "/api/") || place == "/openapi.json" }

// answer answers a request, or returns why not.
func (h *handler) answer(w http.ResponseWriter, r *http.Request) *Problem {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return &Problem{
			Status: http.StatusForbidden, Reason: "cross_origin", Detail: "a page of another site may not change anything here",
		}
	}
	who, refused := h.door.caller(r)
	if refused != nil && ofAPI(r.URL.Path) {
		return refused
	}
	// The multiplexer would lead such a path to another place, where what is done may be about more.
	escaped := r.URL.EscapedPath()
	if ofAPI(r.URL.Path) && path.Clean(escaped) != strings.TrimSuffix(escaped, "/") {
		return noPlace(r)
	}
	ctx := r.Context()
	from, name, largest := &h.other, httpserver.Network(r.RemoteAddr), int64(strangersBody)
	if refused == nil {
		httpserver.Known(ctx)
		from, name, largest = &h.known, who.Name, maxBody
		ctx = WithCaller(ctx, who)
	} else if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangersTime)) // without it, readTimeout is
	}
	if !from.rates.Allow(name) {
		return often(h.o.Rate)
	}
	if r.URL.Path != eventsPath { // it has bounds of its own
		if !from.own.Take(name) {
			return full(from.own.Most)
		}
		defer from.own.GiveBack(name)
	}
	r.Body = http.MaxBytesReader(w, r.Body, largest)
	if p := readBody(r, largest); p != nil {
		return p
	}
	if r.URL.Path == eventsPath {
		h.api.ServeHTTP(w, r.WithContext(ctx)) // it bounds itself
		return nil
	}
	select { // not before the body has come, which may take as long as the client likes
	case from.slots <- struct{}{}:
		defer func() { <-from.slots }()
	default:
		return &Problem{
			Status: http.StatusServiceUnavailable, Reason: "overloaded", Detail: "too many requests are in progress",
			after: time.Second,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	switch r = r.WithContext(ctx); {
	case ofAPI(r.URL.Path):
		h.api.ServeHTTP(w, r)
	case h.o.Pages != nil:
		h.o.Pages.ServeHTTP(w, r.WithContext(context.WithValue(ctx, doorKey{}, h.door)))
	default:
		return noPlace(r)
	}
	return nil
}

// readBody reads the body of a request. One to the API it refuses if it is no text: the decoder would put other signs
// in its place.
func readBody(r *http.Request, largest int64) *Problem {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil && errors.As(err, new(*http.MaxBytesError)):
		return &Problem{
			Status: http.StatusRequestEntityTooLarge, Reason: "too_large",
			Detail: fmt.Sprintf("the body is larger than %d bytes", largest),
		}
	case err != nil:
		return &Problem{Status: http.StatusBadRequest, Reason: "usage", Detail: "the body did not come whole, or not in time"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !ofAPI(r.URL.Path) {
		return nil
	}
	if !utf8.Valid(body) {
		return wrong("body", "it is not UTF-8")
	}
	if p := vague(r.URL.Query()); p != nil {
		return p
	}
	return hollow(body)
}

func noPlace(r *http.Request) *Problem {
	return &Problem{
		Status: http.StatusNotFound, Reason: "unknown_url", Detail: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path),
		Hints: []string{"GET /openapi.json lists what there is"},
	}
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
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
