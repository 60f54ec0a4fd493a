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
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/embedsidecar/embedsidecar/internal/httpserver"
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
	slots chan struct{}
	own   *shares // of slots

	mu     sync.Mutex
	limits map[string]*rate.Limiter // by name of the token: there are no more than tokens
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
		o: o, door: d, slots: make(chan struct{}, maxRequests), own: newShares(ownRequests),
		limits: map[string]*rate.Limiter{},
	}
	a.api = newRepeats().of(newAPI(o.Service, d))
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
		if p.Status == http.StatusUnauthorized {
			header.Set("Connection", "close") // nobody keeps a connection by asking in vain
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
	if refused == nil {
		httpserver.Known(ctx)
		if p := h.limit(who); p != nil {
			return p
		}
		if r.URL.Path != eventsPath { // it has bounds of its own
			if p := h.own.take(who.Name); p != nil {
				return p
			}
			defer h.own.giveBack(who.Name)
		}
		ctx = WithCaller(ctx, who)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if ofAPI(r.URL.Path) {
		if p := readBody(r); p != nil {
			return p
		}
	}
	if r.URL.Path == eventsPath {
		h.api.ServeHTTP(w, r.WithContext(ctx)) // it bounds itself
		return nil
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return &Problem{
			Status: http.StatusServiceUnavailable, Reason: "overloaded", Detail: "too many requests are under way",
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

// readBody reads the body of a request to the API, and refuses what is no text: the decoder would put other signs in
// its place.
func readBody(r *http.Request) *Problem {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil && errors.As(err, new(*http.MaxBytesError)):
		return &Problem{
			Status: http.StatusRequestEntityTooLarge, Reason: "too_large",
			Detail: fmt.Sprintf("the body is larger than %d bytes", maxBody),
		}
	case err != nil:
		return &Problem{Status: http.StatusBadRequest, Reason: "usage", Detail: "the body did not come whole, or not in time"}
	case !utf8.Valid(body):
		return wrong("body", "it is not UTF-8")
	}
	if p := vague(r.URL.Query()); p != nil {
		return p
	}
	if p := hollow(body); p != nil {
		return p
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// limit refuses a token that asks too often.
func (h *handler) limit(who Caller) *Problem {
	h.mu.Lock()
	l, ok := h.limits[who.Name]
	if !ok {
		l = rate.NewLimiter(rate.Limit(h.o.Rate), 2*h.o.Rate)
		h.limits[who.Name] = l
	}
	h.mu.Unlock()
	if l.Allow() {
		return nil
	}
	return &Problem{
		Status: http.StatusTooManyRequests, Reason: "rate", after: time.Second,
		Detail: fmt.Sprintf("this token asks more than %d times a second", h.o.Rate),
	}
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
