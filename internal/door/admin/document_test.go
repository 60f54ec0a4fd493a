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

// promised are the schemas of answers, of the OpenAPI document.
type promised struct {
	mu       sync.Mutex // of the compiler, which notes what it has compiled
	compiler *jsonschema.Compiler
	routes   []promisedRoute
}

type promisedRoute struct {
	method string
	path   *regexp.Regexp
	at     string // of the schema in the document
}

// promises reads what the OpenAPI document promises of answers.
func (f *fixture) promises() *promised {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, f.base+"/openapi.json", http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens["reader"]) // whose rate no test measures
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

// broken tells how an answer is not what the document promises of it.
func (p *promised) broken(r *http.Request, body string) error {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return err
	}
	var best *promisedRoute // that without a parameter, where two fit
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

// A wait that takes longer than a body may take to come is answered with how far it is, and not cut off.
func TestWait_LongerThanABodyTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.MustExec(`INSERT INTO embedsidecar.task (pipeline_id, row_key, lane, xid, first_lsn, last_lsn, committed_at)
		SELECT pipeline_id, '1', 1, '3', '0/1', '0/1', now() FROM embedsidecar.pipeline`)
	const patience = 7 * time.Second // more than the 5 s after which huma gives up a body
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

// One that asks for no time at all is told that it was too little; a pipeline that is named twice is acted on once.
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
