package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// api is the API being put together.
type api struct {
	huma    huma.API
	service *Service
	door    *door
}

// newAPI returns what answers requests of callers to the API.
func newAPI(s *Service, d *door) http.Handler {
	mux := http.NewServeMux()
	c := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "embedsidecar: administration", Version: "1",
				Description: "Look at pipelines and rows, and have things done. Every answer that is an error is an application/problem+json with reason, code and hints.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "made by embedsidecar token create"},
					"session": {
						Type: "apiKey", In: "cookie", Name: sessionCookie, Description: "of a browser, from POST /api/v1/session",
					},
				},
			},
			Security: []map[string][]string{{"token": {}}, {"session": {}}},
			Servers:  servers(d.base),
		},
		Formats:                      huma.DefaultFormats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true, // a misspelt filter must not mean none
		Transformers:                 []huma.Transformer{tell},
	}
	a := &api{huma: humago.New(mux, c), service: s, door: d}
	a.routes()
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // ours is Problem
	for _, field := range []string{"task", "ledger"} {
		orNull(schemas["ExplainStory"], field)
	}
	document, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		panic("the OpenAPI document cannot be written: " + err.Error())
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			other := *r
			other.Method = method
			if _, pattern := mux.Handler(&other); pattern != "/" && pattern != "" {
				(&Problem{
					Status: http.StatusMethodNotAllowed, Reason: "method",
					Detail: r.URL.Path + " takes " + method + ", not " + r.Method,
				}).write(w)
				return
			}
		}
		noPlace(r).write(w)
	})
	return mux
}

// servers are where the paths of the document begin, if that is not at the top.
func servers(base string) []*huma.Server {
	if base == "" {
		return nil
	}
	return []*huma.Server{{URL: base}}
}

// orNull has the document say that a field may be null, which huma does not of one that is an object.
func orNull(s *huma.Schema, field string) {
	s.Properties[field] = &huma.Schema{AnyOf: []*huma.Schema{s.Properties[field], {Type: "null"}}}
}

// schemaName names a type in the document; those of other packages have the package's name before theirs.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	at := strings.LastIndexByte(t.PkgPath(), '/')
	if t.Name() == "" || at < 0 || strings.HasSuffix(t.PkgPath(), "/internal/admin") || strings.Contains(t.PkgPath(), "huma") {
		return huma.DefaultSchemaNamer(t, hint)
	}
	of := t.PkgPath()[at+1:]
	return strings.ToUpper(of[:1]) + of[1:] + t.Name()
}

// roleKey is where an operation says which role it takes.
const roleKey = "x-role"

// on adds a route that takes a role: its summary is its one sentence in the document.
func on[I, O any](a *api, role, method, path, id, summary string, answer func(ctx context.Context, in *I) (*O, error),
	more ...func(*huma.Operation),
) {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody,
		BodyReadTimeout: -1, // the body has come: the end of such a time would be taken for that of the client
		Description:     "Takes the role " + role + ".",
		Extensions:      map[string]any{roleKey: role},
		Responses: map[string]*huma.Response{"default": {
			Description: "An error",
			Content: map[string]*huma.MediaType{problemType: {
				Schema: a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, ""),
			}},
		}},
		// Before anything of the request is read.
		Middlewares: huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
			if _, err := asked(ctx.Context(), role); err != nil {
				_, w := humago.Unwrap(ctx)
				a.service.ProblemOf(ctx.Context(), err).write(w)
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
			return nil, a.service.ProblemOf(ctx, err)
		}
		return out, nil
	})
}

// body is an answer with a body.
type body[T any] struct{ Body T }

// answers makes the answer of a route of what a method of the Service returned.
func answers[T any](value T, err error) (*body[T], error) { return &body[T]{value}, err }
