package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestTrust_AFormLeadsToNoOtherSite: characters that browsers remove from a URL cannot turn it into one of another
// host, or above the base path.
func TestTrust_AFormLeadsToNoOtherSite(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "ada")
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for back, want := range map[string]string{
		"/queue?state=failed": "/queue?state=failed", "/\t/host/": "/", "/\n/host/": "/", "//host/": "/", "/\\host/": "/",
		"/../other": "/", "/queue/..": "/", "/%2e%2E/other": "/", "/queue/.%2e%2f../other": "/",
		"/queue/..x?of=/../": "/queue/..x?of=/../",
		"\t//host/":          "/", "https://host/": "/", "javascript:alert(1)": "/", "/\x00/host": "/", "/\u0085/host": "/",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.at+"/theme",
			strings.NewReader(url.Values{"theme": {"dark"}, "back": {back}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if _, header := b.send(http.StatusSeeOther, req); header.Get("Location") != want {
			t.Errorf("%q leads to %q", back, header.Get("Location"))
		}
	}
}

// TestTrust_ALinkOfAnotherSiteSignsNobodyIn: a token in the URL signs in automatically only if no page led there and
// the browser has no session. Otherwise the form shows it.
func TestTrust_ALinkOfAnotherSiteSignsNobodyIn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at, _ := r.serve(r.run, options{})
	for _, tt := range []struct {
		from, session string
		itself        bool
	}{
		{from: "none", itself: true},
		{from: "same-origin", itself: true},
		{from: "none", session: "olga"},
		{from: "same-site"},
		{from: "cross-site"},
		{}, // an old browser, or plain HTTP from another machine
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+"/login", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", tt.from)
		page, _ := r.signIn(at, tt.session).send(http.StatusOK, req)
		if !strings.Contains(page, `id="login"`) || strings.Contains(page, "data-itself") != tt.itself {
			t.Errorf("from %q, with the session %q:\n%s", tt.from, tt.session, page)
		}
	}
}

// TestTrust_ALinkWorksNoModel: a page on another port of this machine may link here, and the browser sends the cookie.
// So only a form of the dashboard starts a search.
func TestTrust_ALinkWorksNoModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at, _ := r.serve(r.run, options{})
	b := r.signIn(at, "olga")
	asked := r.asked.Load()
	if page := b.get(http.StatusOK, "/search?pipeline=public.articles&q=password"); !strings.Contains(page, `value="password"`) ||
		strings.Contains(page, "nearest to it") || r.asked.Load() != asked {
		t.Errorf("a link searches:\n%s", page)
	}
	if page := b.post(http.StatusOK, "/search", "pipeline", "public.articles", "q", "password"); !strings.Contains(page,
		"nearest to it") || r.asked.Load() == asked {
		t.Errorf("a form does not:\n%s", page)
	}
}
