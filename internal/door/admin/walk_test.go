package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// document is the part of the OpenAPI document that a test reads.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	OperationID string `json:"operationId"`
	Role        string `json:"x-role"`
	Parameters  []struct {
		Name, In string
		Schema   schema
	}
	RequestBody struct {
		Required bool
		Content  map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
	Required   []string
	Items      *schema
}

// kind returns the type of a schema, ignoring null.
func (s *schema) kind() string {
	if list, ok := s.Type.([]any); ok {
		return list[0].(string)
	}
	kind, _ := s.Type.(string)
	return kind
}

// resolved follows a reference.
func (d *document) resolved(s schema) schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.Components.Schemas[name]
	}
	return s
}

// good has valid values by property name, for every route.
var good = map[string]any{
	"name": "public.docs", "key": "1", "plugin": "fake", "pipeline": "public.docs", "pipelines": []string{"public.docs"},
	"keys": []string{"1"}, "priority": "high", "text": "a question", "on": true,
}

// TestAPI_EveryRouteAsksWhoAndWhatFor reads the OpenAPI document: every route rejects requests without a token, with a
// lower role, or with hostile input, and these change nothing.
func TestAPI_EveryRouteAsksWhoAndWhatFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	d := gets[document](f, "viewer", "/openapi.json")
	if !strings.HasPrefix(d.OpenAPI, "3.1") || len(d.Paths) < 35 {
		t.Fatalf("OpenAPI %s with %d paths", d.OpenAPI, len(d.Paths))
	}
	below := map[string]string{"viewer": "asker", "operator": "viewer", "admin": "operator"}
	before := f.state()
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			method = strings.ToUpper(method)
			whole := f.whole(&d, path, &op, nil)
			less, ok := below[op.Role]
			if !ok {
				t.Errorf("%s %s says not which role it takes", method, path)
			}
			f.refused(http.StatusUnauthorized, "token", "", method, whole.path, whole.body)
			f.refused(http.StatusUnauthorized, "token", "embedsidecar_nonsense", method, whole.path, whole.body)
			f.refused(http.StatusUnauthorized, "token", "", method, whole.path, whole.body, "Cookie", "embedsidecar_session=x")
			f.refused(http.StatusForbidden, "role", less, method, whole.path, whole.body)
			f.refused(http.StatusForbidden, "role", "asker", method, whole.path, whole.body)
			for _, r := range f.hostile(&d, path, &op) {
				if a := f.ask("admin", method, r.path, r.body); a.status < 400 || a.status >= 500 ||
					a.status == http.StatusTooManyRequests {
					t.Errorf("%s %s %.200s: %d %.200s, want 4xx", method, r.path, r.body, a.status, a.body)
				}
			}
			if method != http.MethodGet { // as a page of another site would send with the browser's cookie
				for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"} {
					f.refused(http.StatusForbidden, "cross_origin", "admin", method, whole.path, whole.body, name, value)
				}
			}
			if after := f.state(); after != before {
				t.Fatalf("%s %s changed something:\n%s\nwas:\n%s", method, path, after, before)
			}
		}
	}
	for _, path := range []string{"/api/v1/nothing", "/api/v1/status/", "/openapi.json"} {
		f.refused(http.StatusUnauthorized, "token", "", http.MethodGet, path, "")
	}
	f.refused(http.StatusNotFound, "unknown_url", "admin", http.MethodGet, "/api/v1/nothing", "")
	f.refused(http.StatusMethodNotAllowed, "method", "admin", http.MethodDelete, "/api/v1/status", "")
}

// request is a request to send.
type request struct{ path, body string }

// whole makes a valid request with some values replaced.
func (f *fixture) whole(d *document, path string, op *operation, but map[string]any) request {
	f.t.Helper()
	value := func(name string) any {
		if v, ok := but[name]; ok {
			return v
		}
		return good[name]
	}
	query := url.Values{}
	for _, p := range op.Parameters {
		switch v := value(p.Name); p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(v)))
		case "query":
			if v, ok := but[p.Name]; ok {
				query.Set(p.Name, fmt.Sprint(v))
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	s := d.resolved(op.RequestBody.Content["application/json"].Schema)
	if s.kind() != "object" {
		return request{path: path}
	}
	fields := map[string]any{}
	for name := range s.Properties {
		if v := value(name); v != nil {
			fields[name] = v
		}
	}
	body, err := json.Marshal(fields)
	if err != nil {
		f.t.Fatal(err)
	}
	return request{path, string(body)}
}

// hostile returns invalid requests for a route, all of which must be rejected.
func (f *fixture) hostile(d *document, path string, op *operation) (list []request) {
	f.t.Helper()
	const nul, injected = "\x00", `'; DROP TABLE docs; --`
	add := func(name string, values ...any) {
		for _, v := range values {
			list = append(list, f.whole(d, path, op, map[string]any{name: v}))
		}
	}
	whole := f.whole(d, path, op, nil)
	list = append(list, request{whole.path + "?nonsense=1", whole.body})
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			add(p.Name, nul, injected, strings.Repeat("x", 5000), "public.docs\u202e", "../../etc/passwd")
		case p.In == "query" && (p.Schema.kind() == "integer" || p.Schema.kind() == "boolean"):
			add(p.Name, "x", "-1", "1e99", "99999999999999999999")
		case p.In == "query":
			add(p.Name, nul)
		}
	}
	s := d.resolved(op.RequestBody.Content["application/json"].Schema)
	if s.kind() != "object" {
		return list
	}
	for _, body := range []string{
		`{`, `[]`, `"x"`, `1`, `{"nonsense": 1}`, `{"dry_run": "yes"}`, strings.Repeat("[", 100_000), "{\"a\": \"\xff\"}",
		`{"pipelines": ["` + strings.Repeat("x", 1<<20) + `"]}`,
	} {
		list = append(list, request{whole.path, body})
	}
	for name, property := range s.Properties {
		switch property.kind() {
		case "string":
			add(name, nul, 1, []string{"x"}, map[string]any{})
			if !slices.Contains([]string{"class", "code", "text"}, name) { // any value is allowed there
				add(name, injected)
			}
		case "integer":
			add(name, "1", -1, 1.5, 1e300, true, 1<<40)
		case "boolean":
			add(name, "true", 1)
		case "array":
			add(name, "x", 1, []any{1}, []string{nul}, slices.Repeat([]string{"x"}, 2000), []any{nil})
		case "number":
			add(name, "1", true, []any{1})
		case "object": // conditions
			add(name, "x", 1, []any{1}, map[string]any{"nonsense": 1}, map[string]any{"id": nul},
				map[string]any{"id": map[string]any{"$or": 1}}, map[string]any{"id": map[string]any{"$gt": injected}})
		default:
			f.t.Errorf("%s: a property %q of type %v that this test does not know", path, name, property.Type)
		}
	}
	return list
}
