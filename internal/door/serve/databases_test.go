package serve_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// limited starts a server whose tokens are "all", "first" (for the database first) and "both" (for first and second).
func limited(t *testing.T, edit func(o *serve.Options)) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	of := func(name, limits string) string { return strings.TrimSpace(line(name, name)) + limits + "\n" }
	write(t, path, of("all", "")+of("first", ":database=first")+of("both", ":database=first&database=second"))
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, func(o *serve.Options) {
		o.Tokens = tokens
		edit(o)
	})
}

// TestDatabases_AreChosenByNameOrToken: with several databases, a request about pipelines applies to one of them, for
// agents, too. A token for one database sees no other.
func TestDatabases_AreChosenByNameOrToken(t *testing.T) {
	t.Parallel()
	var asked string
	s := limited(t, func(o *serve.Options) {
		api := serve.NewAPI(*o)
		o.Of = func(r *http.Request, name string) (*gate.API, http.Handler, *gate.Problem) {
			asked = name
			switch {
			case name == "" && serve.AsksPipelines(r.URL.Path):
				return nil, nil, gate.ChooseDatabase([]string{"first", "second"})
			case name == "nobody":
				return nil, nil, gate.NoDatabase(name)
			}
			return api, nil, nil
		}
	})
	const agents = `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_pipelines"}}`
	for _, c := range []struct {
		token, method, path string
		status              int
		database            string
	}{
		{"all", "GET", "/v1/pipelines", 400, ""},
		{"all", "POST", "/mcp", 400, ""},
		{"all", "GET", "/v1/models", 200, ""},
		{"all", "GET", "/v1/pipelines?database=second", 200, "second"},
		{"all", "POST", "/mcp?database=second", 200, "second"},
		{"all", "POST", "/mcp?database=nobody", 404, "nobody"},
		{"first", "GET", "/v1/pipelines", 200, "first"},
		{"first", "POST", "/mcp", 200, "first"},
		{"first", "POST", "/mcp?database=second", 404, ""},
		{"both", "POST", "/mcp", 400, ""},
		{"both", "POST", "/mcp?database=second", 200, "second"},
		{"both", "GET", "/v1/pipelines?database=third", 404, ""},
	} {
		asked, s.token = "", c.token
		body := ""
		if c.method == http.MethodPost {
			body = agents
		}
		a := s.do(c.method, c.path, body, "Accept", "application/json, text/event-stream")
		if a.status != c.status || asked != c.database {
			t.Errorf("%s %s by %q: %d of %q, want %d of %q: %s", c.method, c.path, c.token, a.status, asked, c.status,
				c.database, a.body)
		}
	}
}

// TestDatabases_ATokenForOthersSeesNotTheOnlyOne: a limit to other databases admits to nothing.
func TestDatabases_ATokenForOthersSeesNotTheOnlyOne(t *testing.T) {
	t.Parallel()
	s := limited(t, func(o *serve.Options) { o.Database = "second" })
	for token, want := range map[string]int{"all": 200, "both": 200, "first": 403} {
		s.token = token
		if a := s.do("GET", "/v1/pipelines", ""); a.status != want {
			t.Errorf("by %q: %d, want %d: %s", token, a.status, want, a.body)
		}
	}
}
