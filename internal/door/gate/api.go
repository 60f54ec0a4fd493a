package gate

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

const documentPath = "/openapi.json"

// API is an API under construction: On adds routes, and Close finishes it.
type API struct {
	huma    huma.API
	mux     *http.ServeMux
	form    Form
	judge   *Judge
	handler string // name of all its requests in the metrics; "": the last word of each path
}

// NewAPI begins an API. handler is the name of its requests in the metrics; "": each route has its own.
func NewAPI(title, about, handler, base string, form Form, judge *Judge) *API {
	document := &huma.OpenAPI{
		OpenAPI: "3.1.0", Info: &huma.Info{Title: "embedsidecar: " + title, Version: "1", Description: about},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "made by embedsidecar token create"},
			},
		},
		Security: []map[string][]string{{"token": {}}},
	}
	if base != "" {
		document.Servers = []*huma.Server{{URL: base}}
	}
	mux := http.NewServeMux()
	a := &API{mux: mux, form: form, judge: judge, handler: handler, huma: humago.New(mux, huma.Config{
		OpenAPI: document, Formats: huma.DefaultFormats, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true, // a misspelt filter must not be ignored
	})}
	return a
}

// Document returns the OpenAPI document, for changes that huma does not support.
func (a *API) Document() *huma.OpenAPI { return a.huma.OpenAPI() }

// Sessions documents the session cookie as an alternative to the token.
func (a *API) Sessions(path string) {
	d := a.Document()
	d.Security = append(d.Security, map[string][]string{"session": {}})
	d.Components.SecuritySchemes["session"] = &huma.SecurityScheme{
		Type: "apiKey", In: "cookie", Name: sessionCookie, Description: "of a browser, from POST " + path,
	}
}

// Schema returns the schema of a type.
func Schema[T any](a *API) *huma.Schema {
	return a.Document().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

// OrNull documents that fields of object types may be null, which huma omits.
func OrNull[T any](a *API, fields ...string) {
	s := a.Document().Components.Schemas.SchemaFromRef(Schema[T](a).Ref)
	for _, field := range fields {
		s.Properties[field] = &huma.Schema{AnyOf: []*huma.Schema{s.Properties[field], {Type: "null"}}}
	}
}

// Close writes the document after all routes were added.
func (a *API) Close() {
	d := a.Document()
	delete(d.Components.Schemas.Map(), "ErrorModel") // errors have their own schemas
	for path, item := range d.Paths {
		if plain := strings.ReplaceAll(path, "...}", "}"); plain != path { // that syntax is only the multiplexer's
			delete(d.Paths, path)
			d.Paths[plain] = item
		}
	}
	document, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		panic("the OpenAPI document cannot be written: " + err.Error())
	}
	a.mux.HandleFunc("GET "+documentPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document)
	})
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { visitOf(r.Context()).gate.write(w, a.noPlace(r)) })
}

func (a *API) there(method, path string) bool {
	_, pattern := a.mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	return pattern != "" && pattern != "/"
}

// noPlace is the answer to a request without a route, with a suggestion.
func (a *API) noPlace(r *http.Request) *Problem {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if method != r.Method && a.there(method, r.URL.Path) {
			p := Refuse(http.StatusMethodNotAllowed, "method", r.URL.Path+" takes "+method+", not "+r.Method)
			p.entitle()
			return p
		}
	}
	p := Refuse(http.StatusNotFound, "unknown_url", "there is no "+r.Method+" "+r.URL.Path,
		"GET "+documentPath+" lists what there is")
	if path := "/v1" + r.URL.Path; a.there(r.Method, path) {
		p.Hints = []string{"did you mean " + path + "? The base URL of a client ends with /v1"}
	}
	p.entitle()
	return p
}

// named returns the name of a request in the metrics; see docs/metrics.md.
func (a *API) named(r *http.Request) string {
	if a.handler != "" {
		return a.handler
	}
	_, pattern := a.mux.Handler(r)
	words := strings.Split(pattern, "/")
	for i := len(words) - 1; i > 0; i-- {
		if words[i] != "" && words[i][0] != '{' {
			return words[i]
		}
	}
	return "other"
}

// schemaName names a type in the document, with the package's name for types of other packages.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	at := strings.LastIndexByte(t.PkgPath(), '/')
	if t.Name() == "" || at < 0 || strings.Contains(t.PkgPath(), "/internal/door/") || strings.Contains(t.PkgPath(), "huma") {
		return huma.DefaultSchemaNamer(t, hint)
	}
	of := t.PkgPath()[at+1:]
	return capital(of) + t.Name()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// On adds a route for a role. The summary is its sentence in the document.
func On[I, O any](a *API, role, method, path, id, summary string, answer func(ctx context.Context, in *I) (*O, error),
	more ...func(*huma.Operation),
) {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: capital(summary),
		MaxBodyBytes: -1, BodyReadTimeout: -1, // the gate has read the body and limited its size
		Description: "Takes the role " + role + ".",
		Extensions:  map[string]any{"x-role": role},
		Responses: map[string]*huma.Response{"default": {
			Description: "An error",
			Content: map[string]*huma.MediaType{a.form.kind: {
				Schema: a.Document().Components.Schemas.Schema(reflect.TypeOf(a.form.schema), true, ""),
			}},
		}},
		// This runs before any input is parsed.
		Middlewares: huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
			if _, err := Asked(ctx.Context(), role); err != nil {
				_, w := humago.Unwrap(ctx)
				visitOf(ctx.Context()).gate.write(w, a.judge.Problem(ctx.Context(), err))
				return
			}
			next(ctx)
		}},
	}
	for _, change := range more {
		change(&op)
	}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := answer(ctx, in)
		if err != nil {
			return nil, &formed{a.judge.Problem(ctx, err), a.form}
		}
		return out, nil
	})
}

// Answer is an answer with a body.
type Answer[T any] struct{ Body T }

// Get adds a route that answers with the result of a function.
func Get[I, O any](a *API, role, method, path, id, summary string, answer func(ctx context.Context, in *I) (O, error),
	more ...func(*huma.Operation),
) {
	On(a, role, method, path, id, summary, func(ctx context.Context, in *I) (*Answer[O], error) {
		out, err := answer(ctx, in)
		return &Answer[O]{out}, err
	}, more...)
}

// Raw adds an undocumented path of another protocol, for a role.
func Raw(a *API, role, path string, h http.Handler) {
	a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if _, err := Asked(r.Context(), role); err != nil {
			a.Write(r.Context(), w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Problem turns an error into what the caller may see of it.
func (a *API) Problem(ctx context.Context, err error) *Problem { return a.judge.Problem(ctx, err) }

// Write answers a request with an error, outside of huma.
func (a *API) Write(ctx context.Context, w http.ResponseWriter, err error) {
	visitOf(ctx).gate.write(w, a.judge.Problem(ctx, err))
}

func (g *Gate) write(w http.ResponseWriter, p *Problem) {
	body, _ := json.Marshal(g.o.API.form.of(p)) // texts and numbers cannot fail
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", g.o.API.form.kind)
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}

// huma's own errors get the format of the listener. They omit the value, which may be anything.
func init() { // huma has one for all APIs
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		p := Refuse(status, "usage", msg)
		for _, err := range errs {
			found, ok := err.(huma.ErrorDetailer)
			if !ok {
				p.Errors = append(p.Errors, Mistake{Message: err.Error()})
				continue
			}
			d := found.ErrorDetail()
			p.Errors = append(p.Errors, Mistake{d.Location, d.Message})
		}
		if len(p.Errors) > 0 {
			p.Detail = strings.TrimPrefix(p.Errors[0].Location+": ", ": ") + p.Errors[0].Message
		}
		return &formed{p, visitOf(ctx.Context()).gate.o.API.form}
	}
}
