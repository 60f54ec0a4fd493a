package serve_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/embedsidecar/embedsidecar/internal/serve"
)

// TestTrust_ATokenIsForWhatItsNamesMean: a pipeline is judged by what its name means, and not by how it is spelt; so are
// the names that a token is for.
func TestTrust_ATokenIsForWhatItsNamesMean(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	secrets := map[string]string{}
	for name, only := range map[string]string{"short": "docs", "whole": "public.docs", "gone": "notes"} {
		var err error
		if secrets[name], _, err = serve.CreateToken(path, name, serve.Grant{
			Role: serve.RoleQuery, Pipelines: []string{only},
		}); err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := serve.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		more             []string // pipelines beside public.docs
		who, asks, means string   // "": it is not there for him
	}{
		{nil, "short", "docs", "public.docs"},
		{nil, "short", "public.docs", "public.docs"},
		{nil, "whole", "docs", "public.docs"},
		{nil, "gone", "docs", ""},
		{nil, "gone", "notes", ""},
		{[]string{"docs"}, "short", "docs", "docs"},
		{[]string{"docs"}, "short", "public.docs", ""},
		{[]string{"docs"}, "whole", "public.docs", "public.docs"},
	} {
		b := &searchable{more: c.more, asked: make(chan struct{}, 1), ruled: make(chan string, 1)}
		s := start(t, func(o *serve.Options) {
			o.Tokens, b.backend = tokens, o.Backend.(*backend) //nolint:forcetypeassert // it is
			o.Backend = b
		})
		s.token = secrets[c.who]
		a := s.do("POST", "/v1/pipelines/"+c.asks+"/search", `{"text": "x"}`)
		code, _ := a.problem(t)
		if c.means == "" {
			if code != "pipeline_not_found" || len(b.asked) > 0 {
				t.Errorf("%+v: %d %s", c, a.status, a.body)
			}
			continue
		}
		if code != "row_security" || len(b.ruled) != 1 { // it reaches the database
			t.Errorf("%+v: %d %s", c, a.status, a.body)
		} else if got := <-b.ruled; got != c.means {
			t.Errorf("%+v: the rules are those of %s", c, got)
		}
		if a := s.do("GET", "/v1/pipelines", ""); strings.Count(string(a.body), `"name"`) != 1 ||
			!strings.Contains(string(a.body), `"name":"`+c.means+`"`) {
			t.Errorf("%+v: there is %s", c, a.body)
		}
	}
}
