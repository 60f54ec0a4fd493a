package admin_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// promised are the answer schemas of the OpenAPI document.
type promised struct {
	mu       sync.Mutex // guards the compiler, which caches schemas
	compiler *jsonschema.Compiler
	routes   []promisedRoute
}

type promisedRoute struct {
	method string
	path   *regexp.Regexp
	at     string // place of the schema in the document
}

// promises reads the answer schemas of the OpenAPI document.
func (f *fixture) promises() *promised {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.base+"/openapi.json", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens["reader"]) // no test measures its rate
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	document, err := jsonschema.UnmarshalJSON(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	p := &promised{compiler: jsonschema.NewCompiler()}
	if err := p.compiler.AddResource("api.json", document); err != nil {
		f.t.Fatal(err)
	}
	parameter, escape := regexp.MustCompile(`\\\{[a-z]+\\\}`), strings.NewReplacer("~", "~0", "/", "~1")
	paths, _ := document.(map[string]any)["paths"].(map[string]any)
	for path, operations := range paths {
		like := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
		for method := range operations.(map[string]any) {
			at := "/paths/" + url.PathEscape(escape.Replace(path)) + "/" + method + "/responses/200/content/application~1json/schema"
			p.routes = append(p.routes, promisedRoute{strings.ToUpper(method), like, "api.json#" + at})
		}
	}
	return p
}

// broken returns how an answer violates its schema.
func (p *promised) broken(r *http.Request, body string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return err
	}
	var best *promisedRoute // prefers the route without a parameter if two match
	for i := range p.routes {
		if one := &p.routes[i]; one.method == r.Method && one.path.MatchString(r.URL.EscapedPath()) &&
			(best == nil || len(one.path.String()) > len(best.path.String())) {
			best = one
		}
	}
	if best == nil {
		return errors.New("it is not in the document")
	}
	p.mu.Lock()
	s, err := p.compiler.Compile(best.at)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// A wait that is longer than the time limit for a body gets an answer, and is not cut off.
func TestWait_LongerThanABodyTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, '1', 1, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline`)
	const patience = 7 * time.Second // more than 5 s, huma's time limit for a body
	began := time.Now()
	a := f.ask("viewer", http.MethodGet, "/api/v1/wait?pipeline=docs&pipeline=notes&timeout="+patience.String(), "")
	var d struct {
		CaughtUp  bool `json:"caught_up"`
		Pipelines []json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.body), &d); err != nil || a.status != http.StatusOK || d.CaughtUp ||
		len(d.Pipelines) != 2 || time.Since(began) < patience {
		t.Errorf("after %s: %d %s, want 200 and what is left", time.Since(began), a.status, a.body)
	}
}

// A wait with a zero timeout answers caught_up: false; a pipeline that is named twice is processed once.
func TestAct_NoTimeAndTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.reset()
	if a := f.ask("viewer", http.MethodGet, "/api/v1/wait?pipeline=docs&timeout=0s", ""); a.status != http.StatusOK ||
		!strings.Contains(a.body, `"caught_up":false`) {
		t.Errorf("%d %s, want that it has not caught up", a.status, a.body)
	}
	a := f.ask("operator", http.MethodPost, "/api/v1/tasks/retry", `{"pipelines": ["docs", "public.docs"], "dry_run": true}`)
	if done := decoded[struct{ Outcomes []json.RawMessage }](f, "retry", a); len(done.Outcomes) != 1 {
		t.Errorf("%s, want one pipeline", a.body)
	}
}
