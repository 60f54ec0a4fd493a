package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/embedsidecar/embedsidecar/internal/base/httpserver"
)

// api answers requests.
type api struct {
	Options
	slots  chan struct{}     // one for each request that may be under way
	own    httpserver.Shares // of the slots, and of bodies that are read before one is taken
	memory *budget
}

// Handler returns what the server answers, for a listener of somebody else.
func Handler(o Options) http.Handler {
	o.Limits = o.Limits.withDefaults()
	a := &api{Options: o, slots: make(chan struct{}, o.Limits.Requests), memory: newBudget(o.Limits.Memory)}
	if o.Tokens != nil {
		a.own.Most = max(o.Limits.Requests/4, 1) //nolint:mnd // a quarter
	}
	mux := http.NewServeMux()
	// The names are those under which requests are counted: docs/metrics.md lists them.
	route := func(name, pattern string, h func(w http.ResponseWriter, r *http.Request) error) {
		mux.Handle(pattern, a.handle(name, h))
	}
	route("embeddings", "POST /v1/embeddings", a.embeddings)
	route("models", "GET /v1/models", a.models)
	route("models", "GET /v1/models/{name...}", a.model)
	route("pipelines", "GET /v1/pipelines", a.pipelines)
	route("search", "POST /v1/pipelines/{name}/search", a.search)
	route("similar", "POST /v1/pipelines/{name}/similar", a.similar)
	mux.Handle("GET /healthz", a.measured("health", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})))
	route("other", "/", func(_ http.ResponseWriter, r *http.Request) error {
		return &problem{
			status: http.StatusNotFound, kind: invalidRequest, code: "unknown_url",
			message: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path) + meant(mux, r),
		}
	})
	return ownPages(mux)
}

// meant returns what a request to a place that is not there was probably for: the same with /v1 before it, or by
// another method.
func meant(mux *http.ServeMux, r *http.Request) string {
	there := func(method, path string) bool {
		_, pattern := mux.Handler(&http.Request{Method: method, Host: r.Host, URL: &url.URL{Path: path}})
		return pattern != "" && pattern != "/"
	}
	if path := "/v1" + r.URL.Path; there(r.Method, path) {
		return ": did you mean " + path + "? The base URL of a client ends with /v1"
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if there(method, r.URL.Path) {
			return ": it takes " + method
		}
	}
	return ""
}

// ownPages refuses what a page of another site asks in the name of whoever reads it, also by GET: a model must not be
// started or a database asked by an image in a page.
func ownPages(h http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		judged := *r
		judged.Method = http.MethodPost // others are let through unseen
		if err := protection.Check(&judged); err != nil {
			(&problem{
				status: http.StatusForbidden, kind: permissionError, code: "cross_origin",
				message: "a page of another site may not ask here",
			}).write(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// measured counts requests and gives each its id.
func (a *api) measured(name string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		sw := &statusWriter{ResponseWriter: w}
		id := requestID(r.Header.Get("X-Request-Id"))
		header := w.Header()
		header.Set("X-Request-Id", id)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		h.ServeHTTP(sw, r)
		took := time.Since(began)
		if a.Observe != nil {
			a.Observe(name, method(r.Method), sw.status, took)
		}
		if a.Log != nil {
			a.Log.DebugContext(r.Context(), "query answered", "handler", name, "status", sw.status, "took_seconds",
				took.Seconds(), "request_id", id)
		}
	})
}

// method keeps labels few: a client may call its method what it likes.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

// handle adds who may ask, how many at a time and for how long to an answer, and writes its error.
func (a *api) handle(name string, h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return a.measured(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.admitted(w, r, h)
		if err == nil {
			return
		}
		if p := a.problemOf(r.Context(), err); p != nil {
			p.write(w)
		}
	}))
}

func (a *api) admitted(w http.ResponseWriter, r *http.Request, h func(w http.ResponseWriter,
	r *http.Request) error,
) (err error) {
	who, err := a.authorize(w, r)
	if err != nil {
		return err
	}
	httpserver.Known(r.Context())
	if !a.own.Take(who.Name) {
		return &problem{
			status: http.StatusTooManyRequests, kind: serverError, code: "rate", after: time.Second,
			message: fmt.Sprintf("this token already has %d requests in progress, the most allowed", a.own.Most),
		}
	}
	defer a.own.GiveBack(who.Name)
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.Limits.Time, errTooSlow)
	defer cancel()
	defer func() {
		if v := recover(); v != nil { // a mistake of ours in one request ends that request
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	asks := asker{grant: who.Grant, share: a.memory.of(who.Name)}
	defer asks.share.release()
	if err := asks.share.body(ctx, r.ContentLength, a.Limits.BodyBytes); err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, a.Limits.BodyBytes)
	asks.body, asks.unread = a.readAll(r)
	select { // not before the body has come, which may take as long as the client likes
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		return &problem{
			status: http.StatusServiceUnavailable, kind: serverError, code: "overloaded", after: time.Second,
			message: "too many requests are in progress: retry in a second",
		}
	}
	return h(w, r.WithContext(context.WithValue(ctx, askerKey{}, asks)))
}

// asker is who made a request, what memory it holds, and what it brought.
type asker struct {
	grant  Grant
	share  *share
	body   []byte
	unread error // why the body did not come whole
}

type askerKey struct{}

func askerOf(r *http.Request) asker {
	who, ok := r.Context().Value(askerKey{}).(asker)
	if !ok {
		panic("a request that nobody admitted")
	}
	return who
}

// authorize refuses whoever has no token. Without tokens it refuses names of other machines: a page on the web could
// have its own name lead to this address.
func (a *api) authorize(w http.ResponseWriter, r *http.Request) (Token, error) {
	if a.Tokens == nil {
		if !httpserver.NamesThisMachine(r.Host) {
			return Token{}, &problem{
				status: http.StatusForbidden, kind: permissionError, code: "wrong_host",
				message: "without tokens, only requests to localhost are answered",
			}
		}
		return Token{}, nil
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	message := "a token is missing: send it as Authorization: Bearer TOKEN"
	if strings.EqualFold(scheme, "Bearer") {
		who, ok := a.Tokens.Who(strings.TrimSpace(secret))
		switch {
		case ok && who.Administers():
			return Token{}, who.administers()
		case ok:
			return who, nil
		}
		message = who.Unknown()
	}
	w.Header().Set("Connection", "close") // nobody keeps a connection by asking in vain
	w.Header().Set("WWW-Authenticate", `Bearer realm="embedsidecar"`)
	return Token{}, &problem{status: http.StatusUnauthorized, kind: authError, code: "invalid_api_key", message: message}
}

// requestID returns an id that the client gave, if it is fit to be logged, or a new one.
func requestID(given string) string {
	const most = 128
	fit := given != "" && len(given) <= most
	for _, c := range []byte(given) {
		fit = fit && c > ' ' && c < 0x7f && c != '"' && c != '\\'
	}
	if fit {
		return given
	}
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return "req_" + hex.EncodeToString(b)
}

// readJSON reads the body of a POST.
// strict refuses a field that the request does not have: a misspelt filter must not mean none.
func (a *api) readJSON(r *http.Request, into any, strict bool) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &problem{
			status: http.StatusUnsupportedMediaType, kind: invalidRequest, code: "content_type",
			message: "the body must be JSON: send Content-Type: application/json",
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &problem{
			status: http.StatusUnsupportedMediaType, kind: invalidRequest, code: "content_encoding",
			message: "the body must not be compressed",
		}
	}
	body, err := askerOf(r).body, askerOf(r).unread
	if err == nil && !utf8.Valid(body) { // the decoder would put other signs in the place of what is not
		return refuse("", "utf8", "the body is not UTF-8")
	}
	if err == nil {
		err = decode(body, into, strict)
	}
	if err == nil {
		return nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &problem{
			status: http.StatusRequestEntityTooLarge, kind: invalidRequest, code: "request_too_large",
			message: "the body is larger than " + strconv.FormatInt(large.Limit, 10) + " bytes: send less at a time",
		}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field == "" {
		return refuse("", "type", "the body must be a JSON object, not %s", wrong.Value)
	} else if ok {
		return refuse(wrong.Field, "type", "%s: expected %s, not %s", wrong.Field, jsonName(wrong.Type.String()), wrong.Value)
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		field = strings.Trim(field, `"`)
		return refuse(field, "unknown_parameter", "%s is no parameter of this request", field)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return refuse("", "json", "the body ends in the middle of its JSON")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return refuse("", "json", "the body is not JSON: %s at byte %d", syntax, syntax.Offset)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return &problem{
			status: http.StatusRequestTimeout, kind: invalidRequest, code: "timeout",
			message: "the body did not come in time",
		}
	}
	return refuse("", "json", "the body cannot be read: %s", err)
}

// readAll reads a body, in one piece where its length is known.
func (a *api) readAll(r *http.Request) ([]byte, error) {
	if r.ContentLength > a.Limits.BodyBytes {
		return nil, &http.MaxBytesError{Limit: a.Limits.BodyBytes}
	}
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	_, err := body.ReadFrom(r.Body)
	return body.Bytes(), err
}

// decode reads one value, and nothing behind it.
func decode(body []byte, into any, strict bool) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, more := decoder.Token(); more != io.EOF {
		return errors.New("something follows the value")
	}
	return nil
}

// jsonName names a type of Go as JSON does.
func jsonName(t string) string {
	switch {
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "float"):
		return "a number"
	case t == "string":
		return "a string"
	case t == "bool":
		return "true or false"
	}
	return "another kind of value"
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a client that has gone misses nothing
	return nil
}
