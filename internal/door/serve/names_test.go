package serve_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/door/gate"
	"github.com/embedsidecar/embedsidecar/internal/door/serve"
)

// TestTrust_ATokenIsForWhatItsNamesMean: rights depend on the pipeline that a name refers to, not on its spelling, both
// in requests and in tokens.
func TestTrust_ATokenIsForWhatItsNamesMean(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	secrets := map[string]string{}
	for name, only := range map[string]string{"short": "docs", "whole": "public.docs", "gone": "notes"} {
		var err error
		if secrets[name], _, err = gate.CreateToken(path, name, gate.Grant{
			Role: gate.RoleQuery, Pipelines: []string{only},
		}); err != nil {
			t.Fatal(err)
		}
	}
	tokens, err := gate.ReadTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		more             []string // pipelines besides public.docs
		who, asks, means string   // "": not found for this caller
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
		if code != "row_security" || len(b.ruled) != 1 { // the request reaches the database
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

// TestTrust_ATokenThatExpiresIsRefused: a token expires without a change of the file, and the error says so.
func TestTrust_ATokenThatExpiresIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	made := func(name string, ends time.Time) string {
		t.Helper()
		secret, about, err := gate.CreateToken(path, name, gate.Grant{Role: gate.RoleEmbed, Expires: ends})
		if err != nil || about.Expires.IsZero() {
			t.Fatalf("%+v, %v", about, err)
		}
		return secret
	}
	long, short := made("long", time.Now().Add(time.Hour)), ""
	var tokens *gate.Tokens
	var who gate.Token
	for lasts, known := 3*time.Second, false; !known; lasts *= 3 { // on a busy machine it may expire before it is read
		if _, err := gate.RevokeTokens(path, "short"); err != nil {
			t.Fatal(err)
		}
		short = made("short", time.Now().Add(lasts))
		var err error
		if tokens, err = gate.ReadTokens(path, nil); err != nil {
			t.Fatal(err)
		}
		who, known = tokens.Who(short)
	}
	g := newAsker(t, path)
	g.becomes(short, http.StatusUnauthorized)
	if g.asks(long) != http.StatusOK {
		t.Error("one that lasts is refused")
	}
	if _, ok := tokens.Still(who); ok || who.Name != "short" {
		t.Errorf("a session goes on with it: %+v", who)
	}
	a := g.do("GET", "/v1/models", "", "Authorization", "Bearer "+short)
	if _, message := a.problem(t); !strings.Contains(message, "expired at 20") {
		t.Errorf("it is not told: %s", message)
	}
	if _, _, err := gate.CreateToken(path, "over", gate.Grant{Role: gate.RoleEmbed, Expires: time.Now()}); err == nil {
		t.Error("one that has expired is made")
	}
	for _, wrong := range []string{"expires=soon", "expires=", "expires=0001-01-01T00:00:00Z", "expires=2099-01-01T00:00:00Z&expires=2098-01-01T00:00:00Z"} {
		write(t, path+"2", strings.TrimSuffix(line("app", "secret"), "\n")+":"+wrong+"\n")
		if _, err := gate.ReadTokens(path+"2", nil); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
